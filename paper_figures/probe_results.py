"""What the probe of the three pretrained models found, as the project keeps it in ``results/``.

The files are made by ``python -m attention probe``, once a model, and ``python -m attention summarise``; README has the
commands. No model is needed to draw them. A user's own models are drawn from a folder of theirs.
"""

from pathlib import Path

import numpy as np

from attention.probe_study import Study, read_study
from paper_figures.settings import DataError, Settings
from paper_figures.tables import Table

RESULTS = Path(__file__).parents[1] / "results"

MODELS = {"smollm2": "SmolLM2-135M", "minilm": "MiniLM-L6", "rxnmapper": "RXNMapper's ALBERT"}
"""A run of the study, each model as its tokenizer has it, and the model's name."""


def probe_study(settings: Settings) -> tuple[Study, list[str]]:
    """The tables of the user's folder or of ``results/``, and the runs to draw: all of the user's, or ``MODELS``.

    Raises:
        DataError: a table is missing or cannot be read, or a model is not in it.
    """
    try:
        study = read_study(settings.probe or RESULTS)
    except (OSError, ValueError) as error:
        raise DataError(f"the probe's results cannot be read: {error}") from None
    runs = list(dict.fromkeys(study.heads["run"].tolist()))
    if settings.probe is not None:
        return study, runs
    missing = set(MODELS) - set(runs)
    if missing:
        raise DataError(f"the probe's results lack {', '.join(sorted(missing))}")
    return study, list(MODELS)


def of_models(number: int, models: int) -> str:
    """How many of a figure's models, in words for a title."""
    return f"{number or 'none'} of {models} model{'s' if models > 1 else ''}"


def names_of(table: Table) -> dict[str, str]:
    """The runs of a figure's table, in its order, and what a figure calls each."""
    runs = dict.fromkeys(map(str, np.asarray(table["run"])))
    return {run: MODELS.get(run, run) for run in runs}
