"""Many runs: variants x spatial modes x seeds x horizons, on all cores or on a cluster, resumed where they were killed.

A folder holds one sweep. Its ``sweep.json`` says what all runs share, settings and data; another sweep is not let in.
Each run has files of its own in ``runs``, named by what sets it apart: ``NAME.json`` is its result, written whole when
it ends, and the only sign that it has ended; ``NAME.pt`` is its checkpoint, from which it goes on if it was killed, and
which holds the trained weights afterwards; ``NAME.lock`` is held by the process at work on it, and freed by the system
when that process ends, however it ends. So no run is done twice, even if a cluster takes a worker for dead that is
not. ``journal.txt`` has one line for each start and each end of a run, with the worker that did it. When all runs that
were asked for have ended, ``results.csv`` and ``results.json`` are written anew, of those runs and no others.
``sweep.lock`` is held while ``sweep.json`` or the results are written, so that two sweeps of one folder do not write at
once. If a sweep of this machine is killed, the runs that its other processes have begun still end, and count; they
begin no more.

Every run is computed on one thread, so its numbers depend neither on the number of processes nor on which of them did
it. On a cluster, all workers and the caller must see the folder, and the data where they are a file, under the same
path; a worker does one run at a time, however many threads it has.
"""

import csv
import hashlib
import io
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from tqdm import tqdm

from attention.forecaster import VARIANTS, Spatial
from attention.metrics import REPORTED_STEPS
from attention.series import Speeds, split
from attention.synthetic_roads import SyntheticRoads, synthetic_roads
from attention.traffic import read_speeds
from attention.training import Settings, _write_whole, evaluate, train, write_result
from numerics import MeanInterval, mean_interval
from numerics.token_clouds import check_count

BASELINE = "no-regularisation"
"""The variant that the others are compared with."""

MEASURES = ("mae", "rmse", "mape")

CONNECT_SECONDS = 5
"""How long a scheduler may take to answer."""

WORKER_SECONDS = 60
"""How long a cluster without workers may take to get one."""

SYNTHETIC = "synthetic roads"
"""Their name among the data; their readings are in mph."""

SYNTHETIC_DECIMALS = 4
"""Of the readings of synthetic roads, in mph; far below their noise."""

_GRID = {"variant": "variants", "spatial": "spatial modes", "seed": "seeds", "steps_out": "horizons"}
"""What the runs of a sweep differ in, and what a message calls the list of it."""


@dataclass(frozen=True)
class Grid:
    """Which runs: every combination.

    Attributes:
        variants: keys of ``VARIANTS``.
        spatial: of "graph", "published" and "none".
        seeds: at least 0.
        horizons: steps ahead.
        shared: all other settings.

    Raises:
        TypeError: a list or a single value in place of a tuple, or what ``Settings`` refuses.
        ValueError: nothing of one kind, the same twice, or what ``Settings`` refuses.
    """

    variants: tuple[str, ...] = tuple(VARIANTS)
    spatial: tuple[Spatial, ...] = ("graph", "published")
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    horizons: tuple[int, ...] = (12,)
    shared: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        for name, values in zip(_GRID.values(), (self.variants, self.spatial, self.seeds, self.horizons), strict=True):
            if not isinstance(values, tuple):
                raise TypeError(f"{name} must be a tuple, got {values!r}")
            if not values:
                raise ValueError(f"{name} must be at least one, got none")
            twice = next((value for value in values if values.count(value) > 1), None)
            if twice is not None:
                raise ValueError(f"{name} must differ, got {twice} twice")
        _ = self.runs

    @property
    def runs(self) -> tuple[Settings, ...]:
        """The settings of every run."""
        combinations = product(self.horizons, self.spatial, self.variants, self.seeds)
        return tuple(
            replace(self.shared, steps_out=steps_out, spatial=spatial, variant=variant, seed=seed)
            for steps_out, spatial, variant, seed in combinations
        )

    @property
    def common(self) -> dict[str, Any]:
        """What the runs share."""
        return {name: value for name, value in asdict(self.shared).items() if name not in _GRID}


@dataclass(frozen=True, eq=False)
class SweepResult:
    """A finished sweep.

    Attributes:
        grid: which runs.
        data: name and digest of the data.
        results: what ``write_result`` wrote of each run, in the order of ``grid.runs``.
    """

    grid: Grid
    data: Mapping[str, str]
    results: tuple[Mapping[str, Any], ...]

    def references(self, steps_out: int) -> dict[str, Mapping[str, Any]]:
        """Errors of the forecasts without training, and those that nothing beats where they are known, by name."""
        found = {}
        for result in self.results:
            if result["settings"]["steps_out"] == steps_out:
                found |= {name: errors for name, errors in result["errors"].items() if name != "forecaster"}
        return found

    def errors(self, steps_out: int, spatial: str, variant: str, measure: str) -> NDArray[np.float64]:
        """Of the forecaster at the reported steps, (seeds, steps); NaN where nothing was observed."""
        wanted = {"steps_out": steps_out, "spatial": spatial, "variant": variant}
        rows = [
            [_number(result["errors"]["forecaster"][measure][step - 1]) for step in _reported(steps_out)]
            for result in self.results
            if wanted.items() <= result["settings"].items()
        ]
        return np.array(rows, dtype=np.float64)

    def csv(self) -> str:
        """One row a run and reported step, six significant digits; first the forecasts that need no training."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*_GRID, "step", *MEASURES, "best_epoch", "epochs"])
        for steps_out in self.grid.horizons:
            for name, errors in self.references(steps_out).items():
                for step in _reported(steps_out):
                    writer.writerow([name, "", "", steps_out, step, *_cells(errors, step), "", ""])
        for result in self.results:
            settings, errors = result["settings"], result["errors"]["forecaster"]
            place = [settings[name] for name in _GRID]
            for step in _reported(settings["steps_out"]):
                cells = _cells(errors, step)
                writer.writerow([*place, step, *cells, result["best_epoch"], len(result["history"])])
        return text.getvalue()

    def as_numbers(self) -> dict[str, Any]:
        """Settings, data, and of every run the history and the errors at every step."""
        return {
            "settings": self.grid.common,
            "data": dict(self.data),
            "references": {str(steps_out): self.references(steps_out) for steps_out in self.grid.horizons},
            "runs": [
                {
                    **{name: result["settings"][name] for name in _GRID},
                    "best_epoch": result["best_epoch"],
                    "history": result["history"],
                    "errors": result["errors"]["forecaster"],
                }
                for result in self.results
            ],
        }

    def table(self) -> str:
        """Means over seeds and differences to no regularisation seed by seed, with 95 % intervals, as plain text."""
        blocks = [self._block(steps_out, measure) for steps_out in self.grid.horizons for measure in MEASURES]
        return "\n\n".join(blocks)

    def _block(self, steps_out: int, measure: str) -> str:
        steps = _reported(steps_out)
        references = {name: errors for name, errors in self.references(steps_out).items() if measure in errors}
        width = max(len(name) for name in (*self.grid.variants, *references)) + 3
        speed = "mph" if self.data["name"] == SYNTHETIC else "the data's unit"
        lines = [
            f"{measure.upper()} in {'%' if measure == 'mape' else speed}, {steps_out} steps ahead, "
            f"mean of {len(self.grid.seeds)} seed(s) with 95 % interval; "
            f"change = difference to {BASELINE} seed by seed",
            " " * width + "".join(f"{f'step {step}':>7}{'':11}{'change':<15}" for step in steps).rstrip(),
        ]
        for name, errors in references.items():
            cells = (f"{_number(errors[measure][step - 1]):7.3f}{'':26}" for step in steps)
            lines.append(f"{name:<{width}}{''.join(cells)}".rstrip())
        for spatial in self.grid.spatial:
            lines.append(f"{spatial}:")
            base = self.errors(steps_out, spatial, BASELINE, measure) if BASELINE in self.grid.variants else None
            for variant in self.grid.variants:
                errors = self.errors(steps_out, spatial, variant, measure)
                mean = _intervals(errors)
                change = None if base is None or variant == BASELINE else _intervals(errors - base)
                cells = (f"{_shown(mean, at, '7.3f'):<18}{_shown(change, at, '+.3f'):<15}" for at in range(len(steps)))
                lines.append(f"  {variant:<{width - 2}}{''.join(cells)}".rstrip())
        return "\n".join(lines)


def run_sweep(
    grid: Grid,
    out: str | Path,
    *,
    data: str | Path | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: bool = False,
) -> SweepResult:
    """Do all runs that the folder does not hold yet, and write the results of all.

    Args:
        grid: which runs; more of them than last time may be asked for, or fewer.
        out: the folder of the sweep.
        data: file of speeds as ``read_speeds`` takes it; synthetic roads if not given.
        jobs: processes on this machine.
        scheduler: address of a Dask scheduler; its workers do the runs then, and ``jobs`` means nothing.
        progress: say on the standard error how many runs have ended and what time is left.

    Returns:
        The results of the runs that were asked for. They alone are in ``out`` too, as ``results.csv`` and
        ``results.json``; what ended earlier and was not asked for again stays in ``runs``.

    Raises:
        ModuleNotFoundError: ``scheduler`` is given and Dask is not installed.
        TypeError: ``jobs`` is no integer.
        OSError: data or folder cannot be read or written, the scheduler does not answer, or a process was killed.
        ValueError: ``jobs`` below 1, bad data, a run's file that is not of that run, or the folder of another sweep;
            the message is one line.
    """
    check_count("jobs", jobs)
    data = None if data is None else Path(data).resolve()
    out = Path(out).resolve()
    speeds, _ = _read(data)
    for steps_out in grid.horizons:
        split(speeds, steps_in=grid.shared.steps_in, steps_out=steps_out)
    origin = {"name": SYNTHETIC if data is None else data.name, "digest": _digest(speeds)}
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} must be a folder, got a file")
    # A scheduler that does not answer leaves no trace.
    with _workers(jobs, scheduler) as parallel:
        (out / "runs").mkdir(parents=True, exist_ok=True)
        with FileLock(out / "sweep.lock"):
            _claim(out / "sweep.json", {"settings": grid.common, "data": origin})
        missing = [run for run in grid.runs if not _file(out, run, "json").exists()]
        sender = os.getpid() if scheduler is None else None
        tasks = [joblib.delayed(_finish)(out, run, data, origin["digest"], sender) for run in missing]
        with _Progress(len(grid.runs), len(missing), shown=progress) as bar:
            parallel.on_progress = bar.update
            try:
                parallel(tasks)
            except BrokenProcessPool:
                raise ChildProcessError("a process was killed; the same sweep goes on where it was") from None
    results = tuple(_finished(_file(out, run, "json"), run) for run in grid.runs)
    found = SweepResult(grid, origin, results)
    with FileLock(out / "sweep.lock"):
        _write_whole(out / "results.csv", found.csv().encode())
        _write_whole(out / "results.json", json.dumps(found.as_numbers()).encode() + b"\n")
    return found


_ONE_AT_A_TIME = threading.Lock()
"""Torch's random numbers and threads belong to the process, but a cluster's worker may have several threads of work."""


def _finish(out: Path, settings: Settings, data: Path | None, digest: str, sender: int | None = None) -> None:
    """Do one run from where it was left, unless it has ended. Runs in a worker.

    Nothing is done if the process ``sender``, this one or its parent, is no more: nobody waits for the run.
    """
    if sender not in (None, os.getpid(), os.getppid()):
        return
    with _ONE_AT_A_TIME, FileLock(_file(out, settings, "lock")), _one_thread():
        result = _file(out, settings, "json")
        if result.exists():
            return
        _note(out, "started", settings)
        speeds, roads = _read_again(data, digest)
        splits = split(speeds, steps_in=settings.steps_in, steps_out=settings.steps_out)
        training = train(splits, settings, checkpoint=_file(out, settings, "pt"), resume=True)
        write_result(result, training, evaluate(training, splits, roads=roads))
        _note(out, "ended", settings)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _read(data: Path | None) -> tuple[Speeds, SyntheticRoads | None]:
    if data is not None:
        return read_speeds(data), None
    # The last bits of the roads' stationary law, hence of the readings, depend on the number of threads of the linear
    # algebra. Cut off, they are the same in every process.
    roads = synthetic_roads()
    values = roads.speeds.values.round(SYNTHETIC_DECIMALS)
    roads = replace(roads, speeds=replace(roads.speeds, values=values))
    return roads.speeds, roads


@lru_cache(maxsize=1)
def _read_again(data: Path | None, digest: str) -> tuple[Speeds, SyntheticRoads | None]:
    """The data that the sweep began with; read once in a process.

    Raises:
        ValueError: they are others.
    """
    speeds, roads = _read(data)
    if _digest(speeds) != digest:
        raise ValueError(f"{data or SYNTHETIC}: not the readings that the sweep began with")
    return speeds, roads


def _digest(speeds: Speeds) -> str:
    """Tells one series from another, whatever kind of file it came from."""
    digest = hashlib.sha256()
    for values in (speeds.values, speeds.time_of_day):
        digest.update(str(values.shape).encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _file(out: Path, settings: Settings, suffix: str) -> Path:
    name = f"{settings.variant}-{settings.spatial}-{settings.steps_out}-seed{settings.seed}"
    return out / "runs" / f"{name}.{suffix}"


def _note(out: Path, event: str, settings: Settings) -> None:
    """A line in the journal; short appends are not torn."""
    now = datetime.now().isoformat(timespec="seconds")
    with open(out / "journal.txt", "a") as file:
        file.write(f"{now} {event} {_file(out, settings, 'json').stem} by {socket.gethostname()} {os.getpid()}\n")


def _claim(path: Path, ours: dict[str, Any]) -> None:
    """The folder is ours, or becomes ours.

    Raises:
        ValueError: it is another sweep's.
    """
    if not path.exists():
        _write_whole(path, json.dumps(ours, indent=2).encode() + b"\n")
        return
    theirs = _result(path)
    settings, data = (theirs.get(name) for name in ("settings", "data"))
    if not (isinstance(settings, dict) and isinstance(data, dict)):
        raise ValueError(f"{path} must hold the settings and data of a sweep; choose another folder")
    for name, value in ours["settings"].items():
        if settings.get(name) != value:
            raise ValueError(
                f"{path.parent} holds another sweep: its {name} is {settings.get(name)!r}, not {value!r}; "
                "choose another folder"
            )
    if data.get("digest") != ours["data"]["digest"]:
        raise ValueError(
            f"{path.parent} holds another sweep: its readings differ, they are of {data.get('name')}, not "
            f"{ours['data']['name']}; choose another folder"
        )


def _finished(path: Path, run: Settings) -> dict[str, Any]:
    """What ``write_result`` wrote of that run.

    Raises:
        ValueError: something else is in the file.
    """
    result = _result(path)
    errors = result.get("errors")
    if not (
        result.get("settings") == asdict(run)
        and {"best_epoch", "history"} <= result.keys()
        and isinstance(errors, dict)
        and isinstance(errors.get("forecaster"), dict)
        and all(len(errors["forecaster"].get(measure) or ()) == run.steps_out for measure in MEASURES)
    ):
        raise ValueError(f"{path} does not hold the result of that run; remove it to have it made anew")
    return result


def _result(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object as the sweep writes it; remove it to have it made anew")
    return content


class _Watched(joblib.Parallel):
    """Tells how many runs have ended."""

    def on_progress(self, done: int) -> None:
        """Is replaced."""

    def print_progress(self) -> None:
        self.on_progress(self.n_completed_tasks)


@contextmanager
def _workers(jobs: int, scheduler: str | None) -> Iterator[_Watched]:
    """Processes of this machine, or those of a cluster; each task is one run."""
    options = {"batch_size": 1, "pre_dispatch": "all"}
    if scheduler is None:
        yield _Watched(n_jobs=jobs, backend="loky", **options)
        return
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"--scheduler needs the extra [cluster] ({error}): pip install dask distributed"
        ) from None
    try:
        # A client that never got so far would be waited for at the end.
        get_address_host_port(scheduler, strict=True)
    except ValueError:
        raise ValueError(f"a scheduler's address must be like tcp://host:8786, got {scheduler!r}") from None
    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(f"no Dask scheduler answers at {scheduler}: {str(error).splitlines()[0]}") from None
    with (
        client,
        joblib.parallel_config("dask", client=client, wait_for_workers_timeout=WORKER_SECONDS),
    ):
        yield _Watched(**options)


class _Progress:
    """How many runs have ended: a bar on a terminal, a line a run elsewhere."""

    def __init__(self, total: int, missing: int, *, shown: bool) -> None:
        self.total, self.missing, self.shown = total, missing, shown
        self.done, self.start = 0, time.monotonic()
        as_bar = shown and sys.stderr.isatty()
        self.bar = tqdm(total=total, initial=total - missing, unit="run", disable=not as_bar, leave=False)

    def __enter__(self) -> "_Progress":
        if self.shown and self.bar.disable and self.missing:
            print(f"{self.missing} of {self.total} runs to do", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def update(self, done: int) -> None:
        if done <= self.done:
            return
        self.bar.update(done - self.done)
        self.done = done
        if self.shown and self.bar.disable:
            ended = self.total - self.missing + done
            left = (time.monotonic() - self.start) / done * (self.missing - done)
            print(f"{ended} of {self.total} runs, about {left / 60:.1f} min left", file=sys.stderr, flush=True)


def _reported(steps_out: int) -> list[int]:
    """The steps of P1's table that a forecast reaches, and its last one where that lies beyond."""
    steps = [step for step in REPORTED_STEPS if step <= steps_out]
    return steps if steps_out <= max(REPORTED_STEPS) else [*steps, steps_out]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _cells(errors: Mapping[str, Sequence[float | None]], step: int) -> list[str]:
    """The measures at a step, six significant digits; empty where there is none."""
    values = (errors[measure][step - 1] if measure in errors else None for measure in MEASURES)
    return ["" if value is None else f"{value:.6g}" for value in values]


def _intervals(values: NDArray[np.float64]) -> MeanInterval:
    """The interval of each column; without width where there is one seed, NaN where something is missing."""
    whole = np.isfinite(values).all(axis=0)
    mean, half_width = np.full((2, values.shape[1]), np.nan)
    mean[whole] = values[:, whole].mean(axis=0)
    if len(values) > 1:
        half_width[whole] = mean_interval(values[:, whole]).half_width
    return MeanInterval(mean, half_width)


def _shown(interval: MeanInterval | None, at: int, style: str) -> str:
    """A mean and half the width of its interval, where there is one."""
    if interval is None:
        return ""
    mean, half_width = interval.mean[at], interval.half_width[at]
    return f"{mean:{style}}" + (f" ± {half_width:.3f}" if math.isfinite(half_width) else "")
