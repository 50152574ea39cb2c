"""The command line: ``python -m attention bench``."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from attention.bench import bench, report


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
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends with exit code 2 and one line."""
    options = _parser().parse_args(arguments)
    measurements = bench(tokens=options.tokens, sequences=options.sequences, repeats=options.repeats, seed=options.seed)
    print(report(measurements))
    return 0


if __name__ == "__main__":
    sys.exit(main())
