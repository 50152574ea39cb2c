"""The command: ``python -m paper_figures``."""

import argparse
import importlib
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


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("must name a file or folder, got ''")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m paper_figures",
        description="Draw the figures: PNG, PDF and the CSV of every number drawn, with a manifest.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw; all by default")
    parser.add_argument("--out", type=_path, default=Path("figures"), metavar="DIR", help="folder to write (figures)")
    parser.add_argument("--quick", action="store_true", help="fewer draws and smaller sizes")
    parser.add_argument("--data", type=_path, metavar="PATH", help="METR-LA or PEMS-BAY speeds: .csv, .h5 or .npz")
    parser.add_argument(
        "--probe", type=_path, metavar="DIR", help="models of your own: a folder of `python -m attention summarise`"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of everything random (0)")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw what the command line asks for.

    Raises:
        SystemExit: with code 2 and one line on stderr for bad input, with code 130 where the user stops it.
    """
    parser = _parser()
    try:
        _draw(parser, parser.parse_args(arguments))
    except KeyboardInterrupt:
        parser.exit(130, f"{parser.prog}: stopped\n")


def _draw(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
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

    from paper_figures.probe_results import probe_study
    from paper_figures.render import read_manifest, render, write_whole
    from paper_figures.settings import DataError, Settings

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    settings = Settings(quick=args.quick, data=args.data, probe=args.probe, seed=args.seed)
    names = list(dict.fromkeys(args.names)) or list(FIGURES)
    modules = {name: importlib.import_module(f"paper_figures.{name}") for name in FIGURES}
    # Before the first figure, so that none is drawn in vain.
    for option, given, reads, read in (
        ("--data", args.data, "READS_DATA", settings.speeds),
        ("--probe", args.probe, "READS_PROBE", lambda: probe_study(settings)),
    ):
        if given is None:
            continue
        readers = [name for name, module in modules.items() if getattr(module, reads, False)]
        if not set(readers) & set(names):
            parser.error(f"{option}: no figure asked for reads it; {', '.join(readers)} do")
        try:
            read()
        except DataError as error:
            parser.error(f"{option}: {error}")
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
    for place, name in enumerate(names, 1):
        print(f"[{place}/{len(names)}] {name}", flush=True)
        try:
            entry = render(name, settings, args.out)
        except DataError as error:
            read_data = args.data is not None and modules[name].READS_DATA
            parser.error(f"--data: {error}" if read_data else f"{name}: {error}")
        print(f"    {entry['finding']}")
        print(f"    {args.out}/: {', '.join(entry['files'])}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
