"""Sweeps: the same numbers however they are spread, resumed where they were killed, no run lost and none done twice."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from filelock import FileLock, Timeout

import attention.sweep as sweep_module
import attention.training as training_module
from attention import Grid, Settings, SweepResult, evaluate, read_speeds, run_sweep, split, train
from attention.__main__ import main
from numerics import mean_interval
from tests.evidence import agree

SHARED = Settings(epochs=6, patience=6, batch_size=8, steps_in=4)
GRID = Grid(
    variants=("no-regularisation", "diagonal-dropout"),
    spatial=("graph",),
    seeds=(0, 1),
    horizons=(3,),
    shared=SHARED,
)
COMMAND = [
    *("sweep", "--variants", "no-regularisation", "diagonal-dropout", "--spatial", "graph", "--seeds", "0", "1"),
    *("--horizons", "3", "--epochs", "6", "--patience", "6", "--batch-size", "8", "--steps-in", "4"),
]
NAMES = {f"{variant}-graph-3-seed{seed}" for variant in GRID.variants for seed in GRID.seeds}
QUICK = replace(GRID, variants=("no-regularisation",), shared=replace(SHARED, epochs=1, stride=20))

T = TypeVar("T")


def write_speeds(path: Path, *, steps: int = 200, height: float = 10.0) -> Path:
    """Three sensors that rise and fall, with a reading missing here and there."""
    when = np.arange(steps)[:, None]
    values = 50 + height * np.sin(2 * np.pi * (when / 9 + np.arange(3) / 4))
    values[::17, 0] = 0
    rows = ["a,b,c", *(",".join(map(repr, row)) for row in values.tolist())]
    path.write_text("\n".join(rows))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_speeds(tmp_path_factory.mktemp("data") / "speeds.csv")


@pytest.fixture(scope="module")
def local(tmp_path_factory, data) -> tuple[Path, SweepResult]:
    """The sweep in this process, one run after the other."""
    folder = tmp_path_factory.mktemp("local")
    return folder, run_sweep(GRID, folder, data=data)


def ended(folder: Path) -> Counter[str]:
    """How often each run ended."""
    return events(folder, "ended")


def events(folder: Path, event: str) -> Counter[str]:
    lines = [line.split() for line in (folder / "journal.txt").read_text().splitlines()]
    return Counter(line[2] for line in lines if line[1] == event)


def same(first: Path, second: Path) -> bool:
    """Byte for byte."""
    names = ["results.csv", "results.json", *(f"runs/{name}.json" for name in NAMES)]
    return all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def wait_for(look: Callable[[], T | None], *processes: subprocess.Popen[bytes]) -> T:
    """What ``look`` finds in the end."""
    deadline = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen"
        assert all(process.poll() is None for process in processes), "a process ended too early"
        time.sleep(0.005)
    return found


def test_each_run_is_what_training_alone_gives(local, data):
    folder, found = local
    settings = GRID.runs[2]
    assert (settings.variant, settings.seed) == ("diagonal-dropout", 0)
    splits = split(read_speeds(data), steps_in=4, steps_out=3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    training = train(splits, settings)
    torch.set_num_threads(threads)
    expected = evaluate(training, splits)
    assert found.results[2]["errors"] == expected.as_numbers()
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == ["persistence", "daily profile", *(run.variant for run in GRID.runs)]
    errors = expected.errors["forecaster"].at(3)
    row = rows[4]
    assert (row["spatial"], row["seed"], row["steps_out"], row["step"]) == ("graph", "0", "3", "3")
    assert [row[measure] for measure in ("mae", "rmse", "mape")] == [f"{value:.6g}" for value in errors]
    assert (row["best_epoch"], row["epochs"]) == (str(training.best_epoch), str(len(training.history)))
    content = json.loads((folder / "results.json").read_text())
    assert content["data"]["name"] == "speeds.csv"
    assert len(content["data"]["digest"]) == 64
    assert content["settings"]["epochs"] == 6
    assert content["runs"][2]["history"] == [vars(epoch) for epoch in training.history]
    assert content["runs"][2]["errors"] == expected.as_numbers()["forecaster"]
    assert content["references"]["3"]["persistence"] == expected.as_numbers()["persistence"]


def test_the_table_has_means_and_paired_differences(local):
    _, found = local
    base, dropout = (found.errors(3, "graph", variant, "mae")[:, 0] for variant in GRID.variants)
    agree(base, np.array([result["errors"]["forecaster"]["mae"][2] for result in found.results[:2]]))
    lines = found.table().splitlines()
    assert lines[0].startswith("MAE in the data's unit, 3 steps ahead, mean of 2 seed(s)")
    assert lines[1].split() == ["step", "3", "change"]
    mean, change = mean_interval(dropout), mean_interval(dropout - base)
    expected = f"{mean.mean:.3f} ± {mean.half_width:.3f} {change.mean:+.3f} ± {change.half_width:.3f}"
    assert lines[6].split() == ["diagonal-dropout", *expected.split()]


def test_the_numbers_do_not_depend_on_the_number_of_processes(local, data, tmp_path, capsys):
    assert main([*COMMAND, "--data", str(data), "--jobs", "2", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out == local[1].table() + "\n"
    lines = printed.err.splitlines()
    assert lines[0] == "4 of 4 runs to do"
    assert [line.split(",")[0] for line in lines[1:]] == [f"{n} of 4 runs" for n in (1, 2, 3, 4)]
    assert same(tmp_path, local[0])
    assert ended(tmp_path) == dict.fromkeys(NAMES, 1)


class StoppedError(Exception):
    """Stands for anything that ends a program."""


def test_a_stopped_sweep_goes_on_within_its_run(monkeypatch, local, data, tmp_path):
    steps, taken = [], training_module._Run.take_step

    def count(self, *arguments):
        steps.append(1)
        if len(steps) == stop:
            raise StoppedError
        taken(self, *arguments)

    monkeypatch.setattr(training_module._Run, "take_step", count)
    whole = 6 * -(-134 // 8)
    stop = whole + 50
    with pytest.raises(StoppedError):
        run_sweep(GRID, tmp_path, data=data)
    assert not (tmp_path / "results.csv").exists()
    assert sum(ended(tmp_path).values()) == 1
    steps.clear()
    stop = None
    run_sweep(GRID, tmp_path, data=data)
    # The second run goes on from its last checkpoint, the end of its second epoch.
    assert len(steps) == 3 * whole - 2 * whole // 6
    assert same(tmp_path, local[0])
    assert ended(tmp_path) == dict.fromkeys(NAMES, 1)
    # Where all have ended, nothing is done.
    steps.clear()
    run_sweep(GRID, tmp_path, data=data)
    assert not steps
    assert same(tmp_path, local[0])


def test_more_runs_may_be_asked_for_but_no_others(data, tmp_path):
    run_sweep(replace(QUICK, seeds=(0,)), tmp_path, data=data)
    found = run_sweep(QUICK, tmp_path, data=data)
    assert [result["settings"]["seed"] for result in found.results] == [0, 1]
    assert sum(ended(tmp_path).values()) == 2
    with pytest.raises(ValueError, match="holds another sweep: its epochs is 1, not 2; choose another folder"):
        run_sweep(replace(QUICK, shared=replace(QUICK.shared, epochs=2)), tmp_path, data=data)
    other = write_speeds(tmp_path / "other.csv", height=9.0)
    with pytest.raises(ValueError, match=r"its readings differ, they are of speeds\.csv, not other\.csv"):
        run_sweep(QUICK, tmp_path, data=other)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(ValueError, match=r"sweep\.json must hold a JSON object"):
        run_sweep(QUICK, tmp_path, data=data)


def test_results_are_of_the_runs_asked_for_this_time(data, tmp_path):
    grids = [replace(QUICK, seeds=seeds) for seeds in ((0, 1), (1,), (0, 1))]
    tables, runs = [], []
    for grid in grids:
        found = run_sweep(grid, tmp_path, data=data)
        text = (tmp_path / "results.csv").read_text()
        assert text == found.csv()
        numbers = json.loads((tmp_path / "results.json").read_text())["runs"]
        assert tuple(run["seed"] for run in numbers) == grid.seeds
        tables.append(text)
        runs.append({path.name: path.read_bytes() for path in (tmp_path / "runs").iterdir()})
    assert tables[0] == tables[2]
    assert set(tables[1].splitlines()) < set(tables[0].splitlines())
    assert runs[0] == runs[1] == runs[2]


def test_two_sweeps_that_begin_at_once_wait_for_each_other(monkeypatch, data, tmp_path):
    held = []

    def locked(write):
        def watched(path, content):
            if path.parent == tmp_path:
                with pytest.raises(Timeout):
                    FileLock(tmp_path / "sweep.lock").acquire(timeout=0)
                held.append(path.name)
            write(path, content)

        return watched

    monkeypatch.setattr(sweep_module, "_write_whole", locked(sweep_module._write_whole))
    run_sweep(QUICK, tmp_path, data=data)
    assert held == ["sweep.json", "results.csv", "results.json"]


@pytest.mark.parametrize(
    "content", ["another run", {}, {"settings": 3}, {"errors": None}, {"errors": {"forecaster": {}}}]
)
def test_a_result_that_is_not_of_its_run_is_refused(local, data, tmp_path, content):
    shutil.copytree(local[0], tmp_path, dirs_exist_ok=True)
    wrong, other = (tmp_path / "runs" / f"no-regularisation-graph-3-seed{seed}.json" for seed in (0, 1))
    if content == "another run":
        shutil.copy(other, wrong)
    else:
        wrong.write_text(json.dumps(content and json.loads(wrong.read_text()) | content))
    with pytest.raises(ValueError, match=r"no-regularisation-graph-3-seed0\.json does not hold the result of that run"):
        run_sweep(GRID, tmp_path, data=data)


@pytest.mark.parametrize("content", [{"settings": 3, "data": {}}, {"settings": {}, "data": []}, {}])
def test_a_folder_with_a_strange_manifest_is_refused(data, tmp_path, content):
    (tmp_path / "sweep.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="must hold the settings and data of a sweep"):
        run_sweep(QUICK, tmp_path, data=data)


def test_readings_that_change_while_it_runs_are_refused(data, tmp_path):
    with pytest.raises(ValueError, match=r"speeds\.csv: not the readings that the sweep began with"):
        sweep_module._read_again(data, "0" * 64)


def test_workers_that_meet_at_one_run_do_it_once(local, data, tmp_path):
    (tmp_path / "runs").mkdir()
    digest = local[1].data["digest"]
    failures = []

    def work(order):
        try:
            for settings in GRID.runs[:2][::order]:
                sweep_module._finish(tmp_path, settings, data, digest)
        except Exception as error:
            failures.append(error)

    # A cluster that takes a worker for dead starts its run elsewhere, perhaps in another thread of one process.
    threads = [threading.Thread(target=work, args=(order,)) for order in (1, -1, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert set(ended(tmp_path).values()) == {1}
    for settings in GRID.runs[:2]:
        paths = (sweep_module._file(folder, settings, "json") for folder in (tmp_path, local[0]))
        assert len({path.read_bytes() for path in paths}) == 1


def test_a_killed_process_of_this_machine_ends_the_sweep_with_one_line(local, data, tmp_path, capsys):
    pid, killed = os.getpid(), threading.Event()

    def kill():
        journal = tmp_path / "journal.txt"
        lines = wait_for(lambda: journal.exists() and journal.read_text().splitlines())
        victim = int(lines[0].split()[-1])
        assert victim != pid
        os.kill(victim, signal.SIGKILL)
        killed.set()

    killer = threading.Thread(target=kill)
    killer.start()
    command = [*COMMAND, "--data", str(data), "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--jobs", "2"])
    killer.join()
    assert killed.is_set()
    assert stopped.value.code == 2
    assert "a process was killed; the same sweep goes on where it was" in capsys.readouterr().err.splitlines()[-1]
    assert main(command) == 0
    assert same(tmp_path, local[0])
    assert ended(tmp_path) == dict.fromkeys(NAMES, 1)


def test_a_run_whose_sender_is_gone_leaves_nothing(local, data, tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    sweep_module._finish(tmp_path, GRID.runs[0], data, local[1].data["digest"], gone.pid)
    assert not list(tmp_path.iterdir())


def test_the_processes_of_a_killed_sweep_begin_no_more_runs(local, data, tmp_path):
    command = [*COMMAND, "--data", str(data), "--out", str(tmp_path)]
    journal, workers = tmp_path / "journal.txt", set()
    with subprocess.Popen([sys.executable, "-m", "attention", *command, "--jobs", "2"]) as sweep:
        lines = wait_for(lambda: _lines(journal, at_least=2), sweep)
        sweep.kill()
    try:
        workers = {int(line.split()[-1]) for line in lines}
        assert sweep.pid not in workers
        # What has begun ends, and counts.
        begun = events(tmp_path, "started")
        wait_for(lambda: ended(tmp_path) >= begun)
        time.sleep(1)  # in which the next runs would begin
        assert events(tmp_path, "started") == begun
        assert len(begun) < len(NAMES)
        assert {path.stem for path in (tmp_path / "runs").iterdir()} == begun.keys()
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
    assert main(command) == 0
    assert same(tmp_path, local[0])
    assert ended(tmp_path) == dict.fromkeys(NAMES, 1)


def _lines(journal: Path, *, at_least: int) -> list[str]:
    lines = journal.read_text().splitlines() if journal.exists() else []
    return lines if len(lines) >= at_least else []


def test_a_cluster_that_loses_a_worker_loses_nothing(local, data, tmp_path):
    description, out = tmp_path / "scheduler.json", tmp_path / "sweep"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", *map(str, arguments)]
        log = stack.enter_context((tmp_path / f"{len(processes)}.log").open("wb"))
        processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        return processes[-1]

    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        try:
            here = ("--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", description)
            start("distributed.cli.dask_scheduler", "--port", "0", *here)
            workers = [start("distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1", *here) for _ in range(2)]
            address = wait_for(lambda: _address(description), *processes)
            whole = start("attention", *COMMAND, "--data", data, "--scheduler", address, "--out", out)
            victim, run = wait_for(lambda: _amid_a_run(out, workers), *processes)
            victim.kill()
            assert victim.wait() == -signal.SIGKILL
            assert whole.wait(timeout=60) == 0, (tmp_path / "3.log").read_text()
        finally:
            for process in reversed(processes):
                process.kill()
                process.wait()
    assert same(out, local[0])
    assert ended(out) == dict.fromkeys(NAMES, 1)
    assert events(out, "started") == {name: 2 if name == run else 1 for name in NAMES}


def _address(description: Path) -> str | None:
    try:
        return json.loads(description.read_text())["address"]
    except (OSError, ValueError):
        return None


def _amid_a_run(out: Path, workers: list[subprocess.Popen[bytes]]) -> tuple[subprocess.Popen[bytes], str] | None:
    """A worker, stopped, whose run has a checkpoint and has not ended, and that run."""
    if not (out / "journal.txt").exists():
        return None
    for line in (out / "journal.txt").read_text().splitlines():
        _, event, run, *_, process = line.split()
        if event == "started" and (out / "runs" / f"{run}.pt").exists() and not (out / "runs" / f"{run}.json").exists():
            worker = next(worker for worker in workers if worker.pid == int(process))
            worker.send_signal(signal.SIGSTOP)
            if not (out / "runs" / f"{run}.json").exists():
                return worker, run
            worker.send_signal(signal.SIGCONT)
    return None


def test_a_sweep_of_synthetic_roads_knows_the_best_forecast(tmp_path):
    shared = Settings(epochs=1, stride=200)
    grid = Grid(variants=("diagonal-mask",), spatial=("published",), seeds=(0,), horizons=(12, 13), shared=shared)
    found = run_sweep(grid, tmp_path)
    assert list(found.references(12))[2:] == ["best possible", "best possible from the own sensor"]
    lines = (tmp_path / "results.csv").read_text().splitlines()
    best = next(line for line in lines if line.startswith("best possible from the own sensor,,,12,3"))
    assert best.split(",")[-3:] == ["", "", ""]
    steps = [int(line.split(",")[4]) for line in lines if line.startswith("diagonal-mask")]
    assert steps == [3, 6, 12, 3, 6, 12, 13]
    blocks = found.table().split("\n\n")
    assert [block.split(",")[0] for block in blocks[:3]] == ["MAE in mph", "RMSE in mph", "MAPE in %"]
    # One seed has no interval, and there is nothing to compare with.
    row = next(line for line in found.table().splitlines() if "diagonal-mask" in line)
    errors = found.errors(12, "published", "diagonal-mask", "mae")[0]
    assert row.split() == ["diagonal-mask", *(f"{value:.3f}" for value in errors)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--variants"], "argument --variants: expected at least one argument"),
        (["--variants", "mask"], "argument --variants: invalid choice: 'mask'"),
        (["--spatial", "road"], "argument --spatial: invalid choice: 'road'"),
        (["--seeds", "0", "1", "0"], "seeds must differ, got 0 twice"),
        (["--seeds", "-1"], "argument --seeds"),
        (["--horizons", "0"], "argument --horizons: expected a whole number from 1 to 10000, got '0'"),
        (["--horizons", "600"], "the validation rows must hold a window of 12 + 600 steps"),
        (["--jobs", "0"], "argument --jobs: expected a whole number from 1 to 1024, got '0'"),
        (["--data", "nowhere.csv"], "nowhere.csv: No such file or directory"),
        (["--data", " "], "argument --data: must name a file or folder, got ' '"),
        (["--out", ""], "argument --out: must name a file or folder, got ''"),
        (["--out", __file__], "test_sweep.py must be a folder, got a file"),
        (["--scheduler", "head"], "a scheduler's address must be like tcp://host:8786, got 'head'"),
    ],
)
def test_bad_input_ends_with_one_clear_line(capsys, tmp_path, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", "--out", str(tmp_path), *arguments])
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("python -m attention sweep: ")
    assert message in lines[0]


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sweep_module, "CONNECT_SECONDS", 0.5)
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", "--out", str(tmp_path), "--scheduler", "tcp://127.0.0.1:1"])
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in lines[0]
    assert not list(tmp_path.iterdir())


def test_without_dask_it_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", "--out", str(tmp_path), "--scheduler", "tcp://127.0.0.1:1"])
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "pip install dask distributed" in lines[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variants": ()}, "variants must be at least one, got none"),
        ({"variants": ("mask",)}, "variant must be one of"),
        ({"spatial": ("graph", "graph")}, "spatial modes must differ, got graph twice"),
        ({"horizons": ()}, "horizons must be at least one, got none"),
        ({"seeds": (0.5,)}, "seed must be an integer, got float 0.5"),
        ({"seeds": (True,)}, "seed must be an integer, got bool True"),
        ({"seeds": (-1,)}, "seed must be at least 0, got -1"),
        ({"seeds": 3}, "seeds must be a tuple, got 3"),
        ({"variants": "diagonal-mask"}, "variants must be a tuple, got 'diagonal-mask'"),
    ],
)
def test_a_bad_grid_is_named(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        replace(GRID, **change)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (0, "jobs must be at least 1, got 0"),
        (-1, "jobs must be at least 1, got -1"),
        (True, "jobs must be an integer, got bool True"),
        (2.0, "jobs must be an integer, got float 2.0"),
    ],
)
def test_a_bad_number_of_processes_is_named(tmp_path, jobs, message):
    with pytest.raises((TypeError, ValueError), match=message):
        run_sweep(QUICK, tmp_path / "sweep", jobs=jobs)
    assert not (tmp_path / "sweep").exists()


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", "--help"])
    assert stopped.value.code == 0
    assert "examples:\n  python -m attention sweep --out runs/roads --jobs 2\n" in capsys.readouterr().out
