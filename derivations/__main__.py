"""The command line of the notes: ``python -m derivations``."""

import argparse
import multiprocessing
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from derivations.ledger import LEDGER, Claim

EXAMPLES = """examples:
  python -m derivations                    decide every step and print the ledger
  python -m derivations show A5            one note, every step checked as it is printed
  python -m derivations render notes       all notes as HTML, into the folder notes
  python -m derivations table              the ledger as Markdown, as README.md has it
  python -m derivations table --write README.md
"""

LEDGER_START = "<!-- ledger: written by `python -m derivations table --write README.md` -->"
LEDGER_END = "<!-- end of ledger -->"


class _Parser(argparse.ArgumentParser):
    """Bad input gets one line, not the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("must name a file or folder, got ''")
    return Path(text)


@dataclass
class Count:
    """What the steps of one claim came to."""

    steps: int = 0
    proven: int = 0
    near_misses: int = 0
    refuted: int = 0
    counterexamples: int = 0

    @property
    def decided(self) -> bool:
        return self.steps > 0 and self.proven == self.steps and self.refuted == self.near_misses


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = _Parser(
        prog="python -m derivations",
        description="Decide the ledger of claims, read a note, or render all notes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    show = commands.add_parser("show", help="print the notes of a claim with every step checked")
    show.add_argument("claim", help="a claim's id (A5 or A5.penalty) or a note's name (a5_regularisers)")
    render = commands.add_parser("render", help="write all notes as HTML")
    render.add_argument("directory", type=_path, help="the folder to write into; made if absent")
    table = commands.add_parser("table", help="print the ledger as a Markdown table")
    table.add_argument("--write", type=_path, metavar="FILE", help="replace the table inside FILE instead")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "show":
            from derivations.show import show_note

            return max(show_note(note) for note in notes_of(chosen.claim))
        if chosen.command == "render":
            return _render(chosen.directory)
        if chosen.command == "table":
            return _table(chosen.write)
        return _decide_all()
    except BrokenPipeError:
        # The reader (head, less) has seen enough; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: stopped", file=sys.stderr)
        return 130


def notes_of(name: str) -> list[str]:
    """The notes that speak for a claim's id, all notes of a part (A5), or the one of that name.

    Raises:
        ValueError: nothing of that name.
    """
    from derivations.show import claims_of
    from derivations.steps import notes

    known = notes()
    if name in known:
        return [name]
    part = name.split(".")[0].lower()
    found = [note for note in known if note.split("_")[0] == part]
    if "." in name:
        found = [note for note in found if any(entry.id.lower() == name.lower() for entry in claims_of(note))]
    if found:
        return found
    parts = ", ".join(dict.fromkeys(entry.part for entry in LEDGER))
    raise ValueError(f"unknown claim or note {name!r}; the claims are {parts}, the notes {', '.join(known)}")


def decide_note(note: str) -> dict[str, Count]:
    """Check every step of a note; the counts by claim."""
    from derivations.steps import check, load, steps_of

    counts: dict[str, Count] = {}
    for where in steps_of(load(note)):
        outcome = check(where)
        count = counts.setdefault(where.claim, Count())
        count.steps += 1
        count.proven += outcome.verdict is True
        count.near_misses += len(outcome.near_misses)
        count.refuted += sum(verdict is False for verdict in outcome.near_misses.values())
        count.counterexamples += outcome.step.counterexample
    return counts


def _decide_all() -> int:
    from derivations.steps import notes

    counts: dict[str, Count] = {}
    known = notes()
    stopped = False

    def stop(*_: object) -> None:
        # An exception here could leave a lock of the pool behind. Without its workers it ends by itself.
        nonlocal stopped
        stopped = True
        for worker in multiprocessing.active_children():
            worker.terminate()

    # Ctrl-C reaches every process of the terminal; this one alone answers it.
    workers = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)}
    interrupt = signal.signal(signal.SIGINT, stop)
    try:
        with ProcessPoolExecutor(min(len(known), os.cpu_count() or 1), **workers) as pool:
            tasks = [pool.submit(decide_note, note) for note in known]
            for task in tqdm(as_completed(tasks), total=len(tasks), desc="deciding", unit="note", disable=None):
                counts |= task.result()
    except BrokenProcessPool:
        if stopped:
            raise KeyboardInterrupt from None
        raise ChildProcessError("a process that decides notes was killed") from None
    finally:
        signal.signal(signal.SIGINT, interrupt)
    width = shutil.get_terminal_size((110, 20)).columns
    for entry in LEDGER:
        print("\n".join(_ledger_lines(entry, counts.get(entry.id, Count()), width)))
    undecided = [entry.id for entry in LEDGER if not counts.get(entry.id, Count()).decided]
    steps = sum(count.steps for count in counts.values())
    misses = sum(count.near_misses for count in counts.values())
    print(
        f"\n{len(LEDGER) - len(undecided)} of {len(LEDGER)} claims decided by {steps} steps and {misses} near-misses."
    )
    if undecided:
        print(f"undecided: {', '.join(undecided)}")
    return 1 if undecided else 0


def _ledger_lines(entry: Claim, count: Count, width: int) -> Iterator[str]:
    verdict = entry.verdict if count.decided else "UNDECIDED"
    tally = f"{count.proven}/{count.steps} steps, {count.refuted}/{count.near_misses} near-misses refuted"
    if count.counterexamples:
        tally += f", {count.counterexamples} counterexample{'s' if count.counterexamples > 1 else ''}"
    yield f"{entry.id:<20} {verdict:<12} {tally}"
    said = f'{entry.source}: "{entry.says}"' if entry.says else ""
    under = f" Under: {entry.assumptions}." if entry.assumptions else ""
    for text in (said, entry.statement + under):
        yield from textwrap.wrap(text, max(60, width - 4), initial_indent="    ", subsequent_indent="    ")


def _render(directory: Path) -> int:
    from derivations.show import render_all
    from derivations.steps import notes

    known = notes()
    try:
        for _ in tqdm(render_all(directory, known), total=len(known), desc="rendering", unit="note", disable=None):
            pass
    except OSError as error:
        reason = "it is a file" if directory.is_file() else error.strerror
        raise ValueError(f"render {directory}: must be a folder that is there or can be made: {reason}") from None
    print(f"{len(known)} notes in {directory}; start at {directory / 'index.html'}")
    return 0


def _table(file: Path | None) -> int:
    if file is None:
        print(markdown_table())
        return 0
    from derivations.show import write_whole

    try:
        write_whole(file, with_ledger(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not in UTF-8"
        raise ValueError(f"--write {file}: must be a page that can be read and written: {reason}") from None
    return 0


def markdown_table() -> str:
    """The ledger as Markdown: the counts, then one table a verdict, the refuted claims first."""
    groups = _by_verdict()
    fail, under, hold = map(len, groups.values())
    parts = [f"{len(LEDGER)} statements: {fail} fail, {under} hold under their assumptions, {hold} hold without any."]
    for verdict, rows in groups.items():
        lines = ["| claim | prompted by | statement | evidence |", "|---|---|---|---|"]
        for entry in rows:
            assumed = f" Under: {entry.assumptions}." if entry.assumptions else ""
            cells = (entry.id, entry.source.split(" ")[0], entry.statement + assumed, entry.evidence)
            lines.append("| " + " | ".join(map(_escaped, cells)) + " |")
        table = "\n".join(lines)
        unfolded = " open" if verdict == "fails" else ""
        parts.append(f"<details{unfolded}>\n<summary>{verdict}</summary>\n\n{table}\n\n</details>")
    return "\n\n".join(parts)


def _by_verdict() -> dict[str, list[Claim]]:
    verdicts = ("fails", "holds under", "holds")
    return {verdict: [entry for entry in LEDGER if entry.verdict == verdict] for verdict in verdicts}


def _escaped(text: str) -> str:
    """Formulas in plain text, safe from Markdown's own signs."""
    return re.sub(r"([|_*<\\])", r"\\\1", text)


def with_ledger(text: str) -> str:
    """A page's text with the table between the two marks replaced.

    Raises:
        ValueError: the page lacks the marks.
    """
    before, start, rest = text.partition(LEDGER_START)
    _, end, after = rest.partition(LEDGER_END)
    if not start or not end:
        raise ValueError(f"the page needs the marks {LEDGER_START!r} and {LEDGER_END!r}")
    return f"{before}{LEDGER_START}\n\n{markdown_table()}\n\n{LEDGER_END}{after}"


if __name__ == "__main__":
    raise SystemExit(main())
