"""The command line: ``python -m attention train`` and ``python -m attention bench``."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NoReturn, get_args

import torch

from attention.bench import bench, report
from attention.forecaster import PRESETS, VARIANTS, Readout, Spatial
from attention.series import split
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
    return parser


def _add_train(commands: "argparse._SubParsersAction[_Parser]") -> None:
    command = commands.add_parser(
        "train",
        help="train one forecaster and measure it",
        description="Train one forecaster and print its errors on the test part beside persistence and daily profile.",
        epilog="examples:\n  python -m attention train\n"
        "  python -m attention train --variant diagonal-mask --spatial published --seed 3\n"
        "  python -m attention train --data los_speed.csv --epochs 30 --out runs/mask\n"
        "  python -m attention train --data los_speed.csv --epochs 30 --out runs/mask --resume\n"
        "  python -m attention train --data METR-LA.h5 --preset paper --device cuda --out runs/paper",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = Settings()
    command.add_argument(
        "--data", metavar="PATH", help="speeds as .csv, .h5 or .npz (synthetic roads, whose best forecast is known)"
    )
    choices = {
        "variant": (VARIANTS, "what is done to the diagonal"),
        "spatial": (get_args(Spatial), "how sensors meet; published = P1's public code, which passes no message"),
        "preset": (PRESETS, "size of the model"),
        "readout": (get_args(Readout), "tokens that the forecast is read off; all = P1's public code"),
    }
    for name, (known, meaning) in choices.items():
        default = getattr(defaults, name)
        command.add_argument(
            f"--{name}",
            choices=known,
            default=default,
            help=f"{meaning}: {', '.join(known)} ({default})",
            metavar="NAME",
        )
    for name, least, most, meaning in (
        ("epochs", 1, 10_000, "passes over the training part at most"),
        ("seed", 0, 2**32 - 1, "of weights, dropout and order"),
        ("stride", 1, 10_000, "steps between two training windows"),
    ):
        default = getattr(defaults, name)
        command.add_argument(
            f"--{name}", type=_whole_number(least, most), default=default, metavar="N", help=f"{meaning} ({default})"
        )
    command.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (cpu)")
    command.add_argument("--out", metavar="DIR", help="folder for checkpoint.pt and result.json")
    command.add_argument("--resume", action="store_true", help="go on with the run in --out, if there is one")


def _train(options: argparse.Namespace) -> str:
    """The table of one run.

    Raises:
        OSError, ValueError: bad input; the message is one clear line.
    """
    if options.resume and options.out is None:
        raise ValueError("--resume needs --out, the folder of the run")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda needs a GPU that torch can use, got none")
    chosen = {field.name: getattr(options, field.name) for field in fields(Settings) if hasattr(options, field.name)}
    settings = Settings(**chosen)
    if options.data is None:
        roads = synthetic_roads()
        speeds = roads.speeds
    else:
        roads, speeds = None, read_speeds(options.data)
    splits = split(speeds, steps_in=settings.steps_in, steps_out=settings.steps_out)
    checkpoint = None
    if options.out is not None:
        Path(options.out).mkdir(parents=True, exist_ok=True)
        checkpoint = Path(options.out) / "checkpoint.pt"
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
        table = _train(options)
    except (OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog} train: {error}\n")
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
