"""What the probe of the three pretrained models found, as the project keeps it in ``results/``.

The files are made by ``python -m attention probe``, once a model, and ``python -m attention summarise``; README has the
commands. No model is needed to draw them.
"""

from pathlib import Path

from attention.probe_study import Study, read_study
from paper_figures.settings import DataError

RESULTS = Path(__file__).parents[1] / "results"

MODELS = {"smollm2": "SmolLM2-135M", "minilm": "MiniLM-L6", "rxnmapper": "RXNMapper's ALBERT"}
"""A run of the study, each model as its tokenizer has it, and the model's name."""


def probe_study() -> Study:
    """The tables of ``results/``.

    Raises:
        DataError: a table is missing or cannot be read, or a model is not in it.
    """
    try:
        study = read_study(RESULTS)
    except (OSError, ValueError) as error:
        raise DataError(f"the probe's results cannot be read: {error}") from None
    missing = set(MODELS) - set(study.heads["run"].tolist())
    if missing:
        raise DataError(f"the probe's results lack {', '.join(sorted(missing))}")
    return study
