"""Training: the loss, the schedule, exact resume after a kill, and how near to the best possible forecast it comes."""

import json
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import attention.__main__ as command_line
import attention.training as training_module
from attention import (
    Settings,
    Speeds,
    Splits,
    evaluate,
    forecast_windows,
    learning_rate,
    masked_absolute_error,
    pooled_errors,
    road_network,
    split,
    synthetic_roads,
    train,
    write_result,
)
from attention.__main__ import main
from tests.evidence import agree

TINY = Settings(epochs=3, steps_in=4, steps_out=3, batch_size=8)


def waves(steps: int = 90, sensors: int = 2) -> Speeds:
    """Two sensors that rise and fall, with a reading missing here and there."""
    time = np.arange(steps)[:, None]
    values = 50 + 10 * np.sin(2 * np.pi * (time / 9 + np.arange(sensors) / 4))
    values[::17, 0] = 0
    return Speeds(values, np.arange(steps) % 288 / 288, tuple(f"s{n}" for n in range(sensors)))


def parts(steps: int = 90) -> Splits:
    return split(waves(steps), steps_in=TINY.steps_in, steps_out=TINY.steps_out)


def numbers(training) -> list[torch.Tensor]:
    return list(training.model.state_dict().values())


def same(first, second) -> bool:
    """Bit for bit."""
    weights = zip(numbers(first), numbers(second), strict=True)
    return first.history == second.history and all(torch.equal(a, b) for a, b in weights)


def test_the_loss_ignores_what_is_missing():
    targets = torch.tensor([10.0, 0.0, 30.0, 0.0])
    forecast = torch.tensor([13.0, 1e6, 29.0, -7.0], requires_grad=True)
    loss = masked_absolute_error(forecast, targets, targets != 0)
    agree(loss, 2.0)
    loss.backward()
    assert forecast.grad is not None
    agree(forecast.grad, torch.tensor([0.5, 0, -0.5, 0]))


def test_the_loss_of_a_batch_without_targets_moves_nothing():
    forecast = torch.ones(3, requires_grad=True)
    loss = masked_absolute_error(forecast, torch.zeros(3), torch.zeros(3, dtype=torch.bool))
    loss.backward()
    assert loss == 0
    assert (forecast.grad == 0).all()


def test_a_step_without_observed_targets_does_not_train():
    run = training_module._Run(parts(), TINY, torch.device("cpu"))
    windows = forecast_windows(parts().train, steps_in=4, steps_out=3)
    gone = replace(windows, targets=np.zeros_like(windows.targets))
    before = [p.clone() for p in run.model.parameters()]
    run.take_step(gone, np.arange(8), rate=0.0)
    assert all((p.grad == 0).all() for p in run.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, run.model.parameters(), strict=True))
    assert run.error_count == 0


def test_learning_rate_rises_and_falls():
    settings = replace(TINY, learning_rate=2.0, warm_up=0.2)
    rates = [learning_rate(settings, step, 20) for step in range(20)]
    agree(np.array(rates[:5]), np.array([0.5, 1.0, 1.5, 2.0, 2.0]))
    agree(rates[12], 1.0)
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert 0 < rates[-1] < 0.03
    assert learning_rate(replace(settings, warm_up=0.0), 0, 20) == 2.0


def test_a_tiny_set_is_learned_by_heart():
    splits = parts()
    training = train(splits, replace(TINY, epochs=30, patience=30, learning_rate=2e-2))
    windows = forecast_windows(splits.train, steps_in=4, steps_out=3)
    mae = pooled_errors(training.forecast(windows), windows.targets).mae
    assert (mae < 1.5).all()
    persistence = evaluate(training, splits).errors["persistence"].mae
    assert (mae < persistence / 5).all()


def test_a_run_is_a_function_of_its_seed():
    first, again, other = (train(parts(), replace(TINY, seed=seed)) for seed in (5, 5, 6))
    assert same(first, again)
    assert not same(first, other)


def test_training_leaves_the_caller_s_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    train(parts(), TINY)
    assert torch.equal(torch.rand(4), expected)


def test_the_test_part_is_never_looked_at():
    splits = parts()
    other = replace(splits, test=Speeds(splits.test.values * 2, splits.test.time_of_day, splits.test.sensor_ids))
    assert same(train(splits, TINY), train(other, TINY))


def test_it_stops_early_and_keeps_the_best_weights():
    settings = replace(TINY, epochs=60, patience=2, learning_rate=0.1)
    splits = parts()
    training = train(splits, settings)
    assert len(training.history) == training.best_epoch + 2 < 60
    windows = forecast_windows(splits.validation, steps_in=4, steps_out=3)
    errors = pooled_errors(training.forecast(windows), windows.targets)
    best = min(epoch.validation_mae for epoch in training.history)
    agree(errors.mae @ errors.counts / errors.counts.sum(), best)


def test_gradients_are_clipped(monkeypatch):
    found = []
    original = torch.optim.AdamW.step

    def step(self, closure=None):
        squares = [p.grad.square().sum() for group in self.param_groups for p in group["params"]]
        found.append(float(torch.stack(squares).sum().sqrt()))
        return original(self, closure)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    train(parts(), replace(TINY, epochs=1, clip=1e-3))
    assert max(found) <= 1.01e-3


class StoppedError(Exception):
    """Stands for anything that ends a program."""


@pytest.mark.parametrize("at", [1, 5, 8, 13, 21])
def test_resume_from_any_step_ends_in_the_same_numbers(monkeypatch, tmp_path, at):
    settings = replace(TINY, variant="diagonal-dropout")
    unbroken = train(parts(), settings)
    monkeypatch.setattr(training_module, "CHECKPOINT_STEPS", 2)
    taken, take_step = 0, training_module._Run.take_step

    def stop_before(self, *arguments):
        nonlocal taken
        taken += 1
        if taken == at:
            raise StoppedError
        take_step(self, *arguments)

    monkeypatch.setattr(training_module._Run, "take_step", stop_before)
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(StoppedError):
        train(parts(), settings, checkpoint=path)
    assert path.exists() == (at > 2)
    resumed = train(parts(), settings, checkpoint=path, resume=True)
    assert same(unbroken, resumed)
    # A run that had ended is only read.
    before = taken
    assert same(unbroken, train(parts(), settings, checkpoint=path, resume=True))
    assert taken == before


def test_a_run_that_is_killed_goes_on_as_if_it_had_not_been(tmp_path):
    data, broken, unbroken = tmp_path / "speeds.csv", tmp_path / "broken", tmp_path / "unbroken"
    speeds = waves(400, sensors=3)
    rows = [",".join(speeds.sensor_ids), *(",".join(map(repr, row)) for row in speeds.values.tolist())]
    data.write_text("\n".join(rows))
    command = ["train", "--data", str(data), "--epochs", "6", "--variant", "shared-diagonal-dropout", "--out"]
    program = (
        "import sys, torch, attention.training as t; t.CHECKPOINT_STEPS = 3; torch.set_num_threads(1);"
        "from attention.__main__ import main; main(sys.argv[1:])"
    )
    with subprocess.Popen([sys.executable, "-c", program, *command, str(broken)]) as process:
        while not ((path := broken / "checkpoint.pt").exists() and len(_content(path)["history"]) >= 2):
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (broken / "result.json").exists()
    assert len(_content(path)["history"]) < 6
    assert main([*command, str(broken), "--resume"]) == 0
    assert main([*command, str(unbroken)]) == 0
    assert (broken / "result.json").read_bytes() == (unbroken / "result.json").read_bytes()
    first, second = (_content(folder / "checkpoint.pt")["model"] for folder in (broken, unbroken))
    assert all(torch.equal(first[name], second[name]) for name in first)


def _content(path: Path) -> dict:
    return torch.load(path, weights_only=True)


def test_a_checkpoint_is_written_whole_or_not_at_all(monkeypatch, tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(parts(), replace(TINY, epochs=1), checkpoint=path)
    before = path.read_bytes()

    def fails(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="no space left"):
        training_module._write_whole(path, b"half of a checkpoint")
    assert path.read_bytes() == before


class Harmful:
    """Runs code where a pickle is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_what_is_no_checkpoint_of_this_run_is_refused(tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a checkpoint"):
        train(parts(), TINY, checkpoint=path, resume=True)
    path.write_bytes(pickle.dumps(Harmful(tmp_path / "harm")))
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a checkpoint"):
        train(parts(), TINY, checkpoint=path, resume=True)
    torch.save({"model": Harmful(tmp_path / "harm")}, path)
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a checkpoint"):
        train(parts(), TINY, checkpoint=path, resume=True)
    assert not (tmp_path / "harm").exists()
    torch.save({"model": 1}, path)
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a checkpoint of this program"):
        train(parts(), TINY, checkpoint=path, resume=True)
    path.unlink()
    train(parts(), TINY, checkpoint=path)
    whole = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"checkpoint\.pt exists: go on with that run by --resume"):
        train(parts(), TINY, checkpoint=path)
    with pytest.raises(ValueError, match="of another run: its seed is 0, not 1"):
        train(parts(), replace(TINY, seed=1), checkpoint=path, resume=True)
    with pytest.raises(ValueError, match="of another run: its readings differ"):
        train(parts(91), TINY, checkpoint=path, resume=True)
    later = parts(91).validation
    with pytest.raises(ValueError, match="of another run: its readings differ"):
        train(replace(parts(), validation=later), TINY, checkpoint=path, resume=True)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a checkpoint"):
        train(parts(), TINY, checkpoint=path, resume=True)


def test_the_gap_to_the_best_possible_forecast_shrinks():
    roads = synthetic_roads(network=road_network(roads=1, sensors_per_road=2, seed=1), days=6, seed=1)
    splits = split(roads.speeds)
    short, long = (Settings(epochs=epochs, batch_size=32, learning_rate=5e-3) for epochs in (1, 15))
    after_short, after_long = (evaluate(train(splits, settings), splits, roads=roads) for settings in (short, long))
    steps = np.array([3, 6, 12]) - 1
    best = after_long.known["best possible"].mae[steps]
    gap, smaller_gap = (found.errors["forecaster"].mae[steps] - best for found in (after_short, after_long))
    assert (smaller_gap > 0).all()
    assert (smaller_gap < gap / 1.5).all()
    # Better than any forecast that sees the last step alone: it has learned to look back.
    current = roads.known_errors(forecast_windows(splits.test), sees="current").mae[steps]
    assert (best + smaller_gap < current).all()


def test_errors_stand_beside_those_of_simple_forecasts(tmp_path):
    splits = parts()
    training = train(splits, TINY)
    found = evaluate(training, splits)
    assert list(found.errors) == ["forecaster", "persistence", "daily profile"]
    assert not found.known
    windows = forecast_windows(splits.test, steps_in=4, steps_out=3)
    agree(found.errors["forecaster"].mae, pooled_errors(training.forecast(windows), windows.targets).mae)
    # However the windows are batched.
    alone = replace(training, settings=replace(TINY, batch_size=1))
    agree(*(torch.from_numpy(run.forecast(windows)).to(torch.float32) for run in (alone, training)))
    lines = found.table().splitlines()
    assert lines[0].startswith("MAE, RMSE in the data's unit, MAPE % ")
    assert lines[0].split()[-3:] == ["MAE-3", "RMSE-3", "MAPE-3"]
    assert lines[2].split() == ["persistence", *(f"{value:.3f}" for value in found.errors["persistence"].at(3))]
    write_result(tmp_path / "result.json", training, found)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["settings"]["seed"] == 0
    assert len(result["history"]) == 3
    assert result["errors"]["forecaster"]["mae"] == found.errors["forecaster"].mae.tolist()


def test_where_sensors_do_not_meet_the_best_of_the_own_sensor_is_known():
    roads = synthetic_roads(network=road_network(roads=1, sensors_per_road=2), days=1)
    splits = split(roads.speeds)
    training = train(splits, Settings(epochs=1, spatial="published", stride=20))
    known = evaluate(training, splits, roads=roads).known
    assert list(known) == ["best possible", "best possible from the own sensor"]
    assert (known["best possible"].mae <= known["best possible from the own sensor"].mae).all()


def test_a_part_without_targets_is_refused():
    splits = parts()
    silent = Speeds(np.zeros_like(splits.validation.values), splits.validation.time_of_day, ("s0", "s1"))
    with pytest.raises(ValueError, match="the validation windows must have an observed target, got none"):
        train(replace(splits, validation=silent), TINY)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("variant", "mask", "variant must be one of no-residual, .*, got 'mask'"),
        ("spatial", "", "spatial must be one of graph, published, none, got ''"),
        ("preset", "large", "preset must be one of paper, small, got 'large'"),
        ("readout", "mean", "readout must be one of last, all, got 'mean'"),
        ("epochs", 0, "epochs must be at least 1, got 0"),
        ("stride", 0, "stride must be at least 1, got 0"),
        ("seed", -1, "seed must be at least 0, got -1"),
        ("variant", ["diagonal-mask"], r"variant must be one of no-residual, .*, got \['diagonal-mask'\]"),
        ("learning_rate", math.nan, "learning_rate must be positive and finite, got nan"),
        ("learning_rate", math.inf, "learning_rate must be positive and finite, got inf"),
        ("clip", 0, "clip must be positive and finite, got 0"),
        ("weight_decay", -0.1, "weight_decay must be at least 0 and finite, got -0.1"),
        ("weight_decay", math.inf, "weight_decay must be at least 0 and finite, got inf"),
        ("warm_up", 1.0, r"warm_up must lie in \[0, 1\), got 1.0"),
        ("warm_up", math.nan, r"warm_up must lie in \[0, 1\), got nan"),
    ],
)
def test_bad_settings_are_named(name, value, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **{name: value})


@pytest.mark.parametrize("name", ["seed", "epochs", "patience", "batch_size", "steps_in", "steps_out", "stride"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 2.5, 2.0, True, "2"])
def test_counts_are_whole_numbers(name, value):
    with pytest.raises(TypeError, match=re.escape(f"{name} must be an integer, got {type(value).__name__} {value!r}")):
        replace(TINY, **{name: value})
    assert type(getattr(replace(TINY, **{name: np.int64(2)}), name)) is int


@pytest.mark.parametrize("name", ["learning_rate", "clip", "weight_decay", "warm_up"])
@pytest.mark.parametrize("value", [True, "0.5", None])
def test_numbers_are_numbers(name, value):
    with pytest.raises(TypeError, match=f"{name} must be a number, got {type(value).__name__} {value!r}"):
        replace(TINY, **{name: value})


def test_the_command_trains_on_synthetic_roads(capsys):
    assert main(["train", "--epochs", "1", "--stride", "100", "--variant", "diagonal-penalty"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert lines[0] == "diagonal-penalty, graph, seed 0: best epoch 1 of 1"
    assert lines[1].startswith("MAE, RMSE in mph, MAPE % ")
    assert [line[:13] for line in lines[2:]] == ["forecaster   ", "persistence  ", "daily profile", "best possible"]


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert "examples:\n  python -m attention train\n" in printed
    into_mask = [line for line in printed.splitlines() if "--out runs/mask" in line]
    assert into_mask
    assert all("--variant diagonal-mask" in line for line in into_mask)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--variant", "mask"], "argument --variant: invalid choice: 'mask'"),
        (["--epochs", "0"], "argument --epochs: expected a whole number from 1 to 10000, got '0'"),
        (["--seed", "-1"], "argument --seed"),
        (["--resume"], "--resume needs --out, the folder of the run"),
        (["--data", "nowhere.csv"], "cannot read nowhere.csv"),
        (["--data", __file__], "must be a .csv, .h5, .hdf5 or .npz file"),
        (["--data", ""], "argument --data: must name a file or folder, got ''"),
        (["--out", ""], "argument --out: must name a file or folder, got ''"),
        (["--out", __file__], "test_training.py must be a folder that is there or can be made: it is a file"),
        (["--spatial", "graph", "--stride", "x"], "argument --stride"),
    ],
)
def test_bad_input_ends_with_one_clear_line(capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main(["train", *arguments])
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("python -m attention")
    assert message in lines[0]


@pytest.mark.parametrize("out", [True, False])
def test_a_stopped_run_says_how_to_go_on(capsys, monkeypatch, tmp_path, out):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "train", stop)
    with pytest.raises(SystemExit) as stopped:
        main(["train", *(["--out", str(tmp_path)] if out else [])])
    assert stopped.value.code == 130
    go_on = "; give --resume to go on" if out else ""
    assert capsys.readouterr().err == f"python -m attention train: stopped{go_on}\n"


def test_an_old_run_is_not_overwritten(capsys, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"the run of yesterday")
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--out", str(tmp_path)])
    assert stopped.value.code == 2
    assert "checkpoint.pt exists: go on with that run by --resume (resume=True), or" in capsys.readouterr().err
    assert (tmp_path / "checkpoint.pt").read_bytes() == b"the run of yesterday"
