"""The command: ``python -m paper_figures``."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from paper_figures import FIGURES

EXAMPLES = """\
examples:
  python -m paper_figures
      every figure into figures/
  python -m paper_figures --quick --out look
      every figure from fewer draws, in under a minute
  python -m paper_figures sensitivity_maps --data los_speed.csv
      one figure, with a row of real METR-LA windows
  python -m paper_figures sinks_by_layer price_against_mass head_kinds --probe runs/summary
      the three figures of pretrained models, for models that you probed

figures:
""" + "\n".join(f"  {name:<28}{shows}" for name, shows in FIGURES.items())


class _Parser(argparse.ArgumentParser):
    """Bad input gets one line, not the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m paper_figures",
        description="Draw the figures: PNG, PDF and the CSV of every number drawn, with a manifest.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw; all by default")
    parser.add_argument("--out", type=Path, default=Path("figures"), metavar="DIR", help="folder to write (figures)")
    parser.add_argument("--quick", action="store_true", help="fewer draws and smaller sizes")
    parser.add_argument("--data", type=Path, metavar="PATH", help="METR-LA or PEMS-BAY speeds: .csv, .h5 or .npz")
    parser.add_argument(
        "--probe", type=Path, metavar="DIR", help="models of your own: a folder of `python -m attention summarise`"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of everything random (0)")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw what the command line asks for.

    Raises:
        SystemExit: with code 2 and one line on stderr for bad input.
    """
    parser = _parser()
    args = parser.parse_args(arguments)
    for name in args.names:
        if name not in FIGURES:
            parser.error(f"unknown figure {name!r}; the figures are {', '.join(FIGURES)}")
    if not 0 <= args.seed < 2**63:
        parser.error(f"--seed must lie in 0 .. 2^63 - 1, got {args.seed}")
    if args.data is not None and not args.data.is_file():
        parser.error(f"--data: there is no file {args.data}")

    if args.probe is not None and not args.probe.is_dir():
        parser.error(f"--probe: there is no folder {args.probe}")

    # One thread sums in one order, so the bytes do not depend on the number of cores. Set before NumPy loads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Late, so that --help and a mistyped name answer at once.
    import torch

    from paper_figures.render import read_manifest, render, write_whole
    from paper_figures.settings import DataError, Settings

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    settings = Settings(quick=args.quick, data=args.data, probe=args.probe, seed=args.seed)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        write_whole(args.out / ".writable", b"")
        (args.out / ".writable").unlink()
    except OSError as error:
        parser.error(f"--out: cannot write to {args.out}: {error.strerror}")
    try:
        read_manifest(args.out)
    except ValueError as error:
        parser.error(f"--out: {error}")
    names = list(dict.fromkeys(args.names)) or list(FIGURES)
    for place, name in enumerate(names, 1):
        print(f"[{place}/{len(names)}] {name}", flush=True)
        try:
            entry = render(name, settings, args.out)
        except DataError as error:
            parser.error(f"{name}: {error}" if args.data is None else f"--data: {error}")
        print(f"    {entry['finding']}")
        print(f"    {args.out}/: {', '.join(entry['files'])}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
