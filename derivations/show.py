"""Notes for reading: in the terminal, and as HTML with MathML.

A note is walked cell by cell, in the order of its source. Text cells are shown as they are; after a code cell come
the steps that it defines, each computed and decided as it is printed.
"""

import html
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from sympy import Add, Expr, Rational
from sympy.printing.latex import LatexPrinter

from derivations.ledger import Claim, claim
from derivations.steps import Outcome, Step, StepFunction, check, load, steps_of

LONGEST_FORMULA = 240
"""Longer formulas are not printed: a brute derivative fills pages."""

LONGEST_NUMBER = 40
"""A longer number is printed as a decimal alone."""


@dataclass(frozen=True)
class Cell:
    """One cell of a note: text, or code with the steps it defines."""

    kind: str  # "markdown" or "code"
    text: str
    steps: tuple[StepFunction, ...] = ()


def cells(note: str) -> list[Cell]:
    """The cells of a note after its docstring, in order.

    Raises:
        ValueError: there is no note of that name.
    """
    module = load(note)
    source = inspect.getsource(module)
    steps = steps_of(module)
    found = []
    starts = [match.start() for match in re.finditer(r"^# %%.*$", source, flags=re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(source)], strict=True):
        header, _, body = source[start:end].partition("\n")
        if "[markdown]" in header:
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines())
            found.append(Cell("markdown", text))
            continue
        first_line = source.count("\n", 0, start) + 1
        last_line = source.count("\n", 0, end) + 1
        inside = tuple(where for where in steps if first_line <= where.line < last_line)
        found.append(Cell("code", body.strip("\n"), inside))
    return found


def mark(verdict: bool | None) -> str:
    """The word for a decision."""
    return {True: "proven", False: "refuted", None: "UNDECIDED"}[verdict]


def show_note(note: str, out: TextIO | None = None) -> int:
    """Print a note with every step checked as it is printed.

    Args:
        note: the module's name, such as "a1_jacobian".
        out: where to print; standard output by default.

    Returns:
        0 where every step stands, 1 otherwise.

    Raises:
        ValueError: there is no note of that name.
    """
    out = out or sys.stdout
    for entry in claims_of(note):
        for line in _claim_lines(entry):
            print(line, file=out)
    steps = standing = 0
    for cell in cells(note):
        if cell.kind == "markdown":
            print(f"\n{cell.text}\n", file=out)
        for where in cell.steps:
            outcome = check(where)
            steps += 1
            standing += outcome.stands
            for line in step_lines(outcome):
                print(line, file=out, flush=True)
    print(f"\n{note}: {standing} of {steps} steps stand", file=out)
    return 0 if standing == steps else 1


def _claim_lines(entry: Claim) -> Iterator[str]:
    yield f"{entry.id}: {entry.verdict}."
    if entry.says:
        yield textwrap.fill(f'{entry.source} says: "{entry.says}"', 116, initial_indent="  ", subsequent_indent="    ")
    yield textwrap.fill(f"statement: {entry.statement}", 116, initial_indent="  ", subsequent_indent="    ")
    if entry.assumptions:
        yield textwrap.fill(f"under: {entry.assumptions}", 116, initial_indent="  ", subsequent_indent="    ")


def _sides(built: Step) -> tuple[Any, ...]:
    """The sides that are shown: both of an inequality between numbers, otherwise the right one."""
    sides = (built.before, built.after)
    return sides if built.relation != "=" and all(_is_number(side) for side in sides) else sides[1:]


def _is_number(side: Any) -> bool:
    return isinstance(side, Expr) and bool(side.is_number and side.is_finite)


def _written(side: Any, exact: Callable[[Any], str], about: str) -> str:
    """A side as text: a number that one does not read at a glance with its decimal, a long one as its decimal alone."""
    plain = isinstance(side, Rational) and (side.q == 1 or max(abs(side.p), side.q) < 100)
    if plain or not _is_number(side):
        return exact(side)
    decimal = exact(side.evalf(6))
    return f"{exact(side)} ({about} {decimal})" if len(str(side)) <= LONGEST_NUMBER else f"{about} {decimal}"


def step_lines(outcome: Outcome) -> Iterator[str]:
    """The lines of a checked step in the terminal."""
    where, built = outcome.where, outcome.step
    kind = "counterexample" if built.counterexample else "step"
    yield f"  [{mark(outcome.verdict)}] {where.claim}, {kind} {where.name}"
    yield textwrap.indent(where.statement, "      ")
    if _is_number(built.after) or len(str(built.after)) <= LONGEST_FORMULA:
        *left, right = (_written(side, str, "~") for side in _sides(built))
        yield f"      {''.join(f'{side} ' for side in left)}{built.relation} {right}"
    yield f"      because: {built.because}"
    for name, verdict in outcome.near_misses.items():
        yield f"      near-miss [{mark(verdict)}]: {name}"


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 17px/1.55 Georgia, serif; color: #1a1a1a; }}
pre {{ background: #f5f5f2; padding: .7rem; overflow-x: auto; font-size: 13px; line-height: 1.4; }}
details summary {{ cursor: pointer; color: #555; font-size: 14px; }}
.step {{ border-left: 4px solid #0072b2; padding: .2rem .9rem; margin: 1rem 0; background: #f4f8fb; overflow-x: auto; }}
.step.open {{ border-color: #d55e00; background: #fdf3ec; }}
.step p {{ margin: .3rem 0; }}
.tag {{ font: bold 13px sans-serif; }}
.because, .miss {{ font-size: 14px; color: #444; }}
table {{ border-collapse: collapse; font-size: 15px; }}
td, th {{ border-bottom: 1px solid #ddd; padding: .35rem .6rem; text-align: left; vertical-align: top; }}
td p {{ margin: .2rem 0; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def render_note(note: str) -> str:
    """A note as one HTML page; formulas are MathML, so no script and no font is fetched.

    Raises:
        ValueError: there is no note of that name, or a formula that the MathML converter does not know.
    """
    parts = ['<p><a href="index.html">all notes</a></p>']
    for cell in cells(note):
        if cell.kind == "markdown":
            parts.append(markdown(cell.text))
            continue
        if cell.text.strip():
            parts.append(f"<details><summary>code</summary><pre>{html.escape(cell.text)}</pre></details>")
        parts.extend(step_page(check(where)) for where in cell.steps)
    return PAGE.format(title=note, body="\n".join(parts))


def render_index(pages: dict[str, tuple[Claim, ...]]) -> str:
    """The front page: every note with its claims and their verdicts."""
    rows = []
    for note, claims in pages.items():
        for number, entry in enumerate(claims):
            link = f'<a href="{note}.html">{note}</a>' if number == 0 else ""
            said = f"<p><em>{html.escape(entry.source)}:</em> {html.escape(entry.says)}</p>" if entry.says else ""
            under = f"<p><em>under:</em> {html.escape(entry.assumptions)}</p>" if entry.assumptions else ""
            rows.append(
                f"<tr><td>{link}</td><td>{entry.id}</td><td>{html.escape(entry.verdict)}</td>"
                f"<td>{said}<p>{html.escape(entry.statement)}</p>{under}</td></tr>"
            )
    table = "<table><tr><th>note</th><th>claim</th><th>verdict</th><th>statement</th></tr>" + "".join(rows) + "</table>"
    return PAGE.format(title="sinkproof: the notes", body=f"<h1>The notes</h1>{table}")


def claims_of(note: str) -> tuple[Claim, ...]:
    """The claims that a note's steps speak for, in order of first appearance."""
    return tuple(claim(id) for id in dict.fromkeys(where.claim for where in steps_of(load(note))))


def step_page(outcome: Outcome) -> str:
    """A checked step as HTML."""
    where, built = outcome.where, outcome.step
    lines = [
        f'<div class="step{"" if outcome.stands else " open"}">',
        f'<p class="tag">{mark(outcome.verdict)} &middot; {where.claim}'
        f"{' &middot; counterexample' if built.counterexample else ''}</p>",
        markdown(where.statement),
    ]
    if _is_number(built.after) or len(str(built.after)) <= LONGEST_FORMULA:
        *left, right = (_written(side, _Latex().doprint, r"\approx") for side in _sides(built))
        start = left[0] if left else r"\cdots"
        lines.append(_mathml(f"{start} {_RELATIONS[built.relation]} {right}", display=True))
    lines.append(f'<p class="because">because: {html.escape(built.because)}</p>')
    lines.extend(
        f'<p class="miss">near-miss {mark(verdict)}: {html.escape(name)}</p>'
        for name, verdict in outcome.near_misses.items()
    )
    return "\n".join([*lines, "</div>"])


_RELATIONS = {"=": "=", "<=": r"\le", "<": "<"}


class _Latex(LatexPrinter):
    def _print_Sum(self, expr):
        # SymPy stacks the ranges of a double sum under one sign; by hand one writes two signs.
        signs = [
            rf"\sum_{{{self._print(index)}={self._print(lower)}}}^{{{self._print(upper)}}}"
            for index, lower, upper in reversed(expr.limits)
        ]
        body = self._print(expr.function)
        return " ".join(signs) + (rf" \left({body}\right)" if isinstance(expr.function, Add) else f" {body}")


def markdown(text: str) -> str:
    """Markdown with $..$ and $$..$$ maths as HTML with MathML."""
    from markdown_it import MarkdownIt

    formulas: list[str] = []

    def keep(match: re.Match[str]) -> str:
        display = match.group(1) is not None
        formulas.append(_mathml(match.group(1) or match.group(2), display=display))
        return f"\x02{len(formulas) - 1}\x03"

    held = re.sub(r"\$\$(.+?)\$\$|\$([^$]+?)\$", keep, text, flags=re.DOTALL)
    page = MarkdownIt("commonmark").enable("table").render(held)
    return re.sub("\x02(\\d+)\x03", lambda match: formulas[int(match.group(1))], page)


def _mathml(formula: str, *, display: bool) -> str:
    from math_core import LatexError, LatexToMathML

    try:
        return LatexToMathML(fancy_error=False).convert_with_local_state(formula, displaystyle=display)
    except LatexError as error:
        raise ValueError(f"no MathML for the formula {formula!r}: {error}") from None


def render_all(directory: Path, notes: list[str]) -> Iterator[str]:
    """Write every note and the index into a directory, each file whole or not at all; yields each note's name.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for note in notes:
        write_whole(directory / f"{note}.html", render_note(note))
        yield note
    write_whole(directory / "index.html", render_index({note: claims_of(note) for note in notes}))


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old content or the new, never a part."""
    partial = path.with_name(path.name + ".part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
