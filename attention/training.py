"""Train a forecaster and measure it: AdamW with warm-up and cosine, early stopping, exact resume.

The loss is the mean absolute error in the raw unit over the observed targets of a batch; which ones were observed is
decided from raw readings. On a CPU a run is a function of data, settings and number of threads: what a run needs to go
on is in its checkpoint (weights, AdamW's moments, the step, the state of torch's random numbers), and the rest follows
from those: the learning rate from the step, the order of the windows from seed and epoch. So a run that was killed and
resumed ends in the same numbers as one that was not.
"""

import hashlib
import io
import json
import math
import os
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from attention.baselines import DailyProfile, Persistence
from attention.forecaster import PRESETS, VARIANTS, Forecaster, Readout, Spatial, input_features
from attention.metrics import REPORTED_STEPS, Errors, PooledErrors, pooled_errors
from attention.series import ForecastWindows, Scaler, Splits, forecast_windows, observed
from attention.synthetic_roads import KnownErrors, SyntheticRoads
from numerics.token_clouds import check_count

CHECKPOINT_STEPS = 100
"""A checkpoint is written after so many steps, and after each epoch."""


@dataclass(frozen=True)
class Settings:
    """All that a run depends on beside its data.

    Attributes:
        variant: a key of ``VARIANTS``.
        spatial: "graph", "published" or "none".
        preset: a key of ``PRESETS``.
        readout: "last" or "all".
        seed: of weights, dropout and the order of windows.
        epochs: passes over the training windows at most.
        patience: epochs without a better validation error after which training stops.
        batch_size: windows a step.
        learning_rate: its peak.
        warm_up: share of all steps in which the learning rate rises, in [0, 1); then it falls like a cosine to 0.
        weight_decay: AdamW's.
        clip: largest norm of a step's gradient.
        steps_in, steps_out: steps that a forecast looks back and ahead.
        stride: steps between the starts of two training windows; validation and test take every window.

    Raises:
        TypeError: a count that is no integer, or a number that is none; True and False are neither.
        ValueError: a value out of its range.
    """

    variant: str = "no-regularisation"
    spatial: Spatial = "graph"
    preset: str = "small"
    readout: Readout = "last"
    seed: int = 0
    epochs: int = 20
    patience: int = 10
    batch_size: int = 16
    learning_rate: float = 3e-3
    warm_up: float = 0.1
    weight_decay: float = 1e-4
    clip: float = 5.0
    steps_in: int = 12
    steps_out: int = 12
    stride: int = 1

    def __post_init__(self) -> None:
        choices = {"variant": VARIANTS, "spatial": get_args(Spatial), "preset": PRESETS, "readout": get_args(Readout)}
        for name, known in choices.items():
            if getattr(self, name) not in tuple(known):
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        for name in ("seed", "epochs", "patience", "batch_size", "steps_in", "steps_out", "stride"):
            check_count(name, getattr(self, name), least=0 if name == "seed" else 1)
            # NumPy's integers are welcome; JSON takes only Python's.
            object.__setattr__(self, name, int(getattr(self, name)))
        for name in ("learning_rate", "clip", "weight_decay", "warm_up"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise TypeError(f"{name} must be a number, got {type(value).__name__} {value!r}")
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be at least 0 and finite, got {self.weight_decay}")
        if not 0 <= self.warm_up < 1:
            raise ValueError(f"warm_up must lie in [0, 1), got {self.warm_up}")


@dataclass(frozen=True)
class Epoch:
    """One pass over the training windows.

    Attributes:
        training_mae: over the observed training targets, with the dropout of training, raw unit.
        validation_mae: over the observed validation targets of all steps ahead, raw unit.
    """

    training_mae: float
    validation_mae: float


@dataclass(frozen=True, eq=False)
class Training:
    """A finished run.

    Attributes:
        model: the forecaster in evaluation mode, with the weights of the best epoch.
        settings: of the run.
        scaler: of features and forecasts.
        history: one entry an epoch.
    """

    model: Forecaster
    settings: Settings
    scaler: Scaler
    history: tuple[Epoch, ...]

    @property
    def best_epoch(self) -> int:
        """Epoch of the least validation error, from 1."""
        return _best_epoch(self.history)

    def forecast(self, windows: ForecastWindows) -> NDArray[np.float64]:
        """The forecast, (N, steps_out, sensors), in the raw unit."""
        starts = range(0, len(windows), self.settings.batch_size)
        batches = (slice(start, start + self.settings.batch_size) for start in starts)
        return np.concatenate([_forecast(self.model, self.scaler, windows, batch) for batch in batches])


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Errors on the test part, by step ahead.

    Attributes:
        errors: of "forecaster", "persistence" and "daily profile".
        known: on synthetic roads, the least errors that a forecast can expect: "best possible", and where sensors
            exchange no messages "best possible from the own sensor".
    """

    errors: Mapping[str, Errors]
    known: Mapping[str, KnownErrors]

    def table(self) -> str:
        """The errors at single steps as plain text."""
        steps = [step for step in REPORTED_STEPS if step <= len(self.errors["forecaster"].mae)]
        measures = ("mae", "rmse", "mape")
        # Synthetic roads alone know the best possible.
        unit = "mph" if self.known else "the data's unit"
        titles = (f"{measure.upper() + f'-{step}':>9}" for measure in measures for step in steps)
        lines = ["".join([f"{f'MAE, RMSE in {unit}, MAPE %':<36}", *titles])]
        for name, errors in {**self.errors, **self.known}.items():
            found = (getattr(errors, measure, None) for measure in measures)
            cells = (f"{values[step - 1]:9.3f}" for values in found if values is not None for step in steps)
            lines.append("".join([f"{name:<36}", *cells]))
        return "\n".join(lines)

    def as_numbers(self) -> dict[str, dict[str, list[float | None]]]:
        """Every measure of every forecast at every step; None where nothing was observed."""
        return {
            name: {
                measure: [float(value) if math.isfinite(value) else None for value in getattr(errors, measure)]
                for measure in ("mae", "rmse", "mape")
                if hasattr(errors, measure)
            }
            for name, errors in {**self.errors, **self.known}.items()
        }


def learning_rate(settings: Settings, step: int, steps: int) -> float:
    """The learning rate of a step: a straight rise to the peak, then half a cosine towards 0.

    Args:
        settings: with the peak and the share of the rise.
        step: from 0.
        steps: of the whole run.

    Returns:
        In (0, peak].
    """
    rise = round(settings.warm_up * steps)
    if step < rise:
        return settings.learning_rate * (step + 1) / rise
    return settings.learning_rate * (1 + math.cos(math.pi * (step - rise) / (steps - rise))) / 2


def masked_absolute_error(forecast: Tensor, targets: Tensor, seen: Tensor) -> Tensor:
    """Mean absolute error over the targets that were observed; 0, with gradient 0, where none was.

    Args:
        forecast: any shape, raw unit.
        targets: the same shape, raw readings.
        seen: the same shape, boolean, True = observed.

    Returns:
        A scalar.
    """
    return torch.where(seen, forecast - targets, 0.0).abs().sum() / seen.sum().clamp(min=1)


def train(
    splits: Splits,
    settings: Settings,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> Training:
    """Train one forecaster; the caller's random numbers are left alone.

    Args:
        splits: the data; the test part is not looked at.
        settings: of the run.
        checkpoint: file that holds all that is needed to go on; always whole, even if the run is killed.
        resume: go on from ``checkpoint`` where it exists; a run that had ended is only read.
        device: where to compute.
        progress: a bar on the standard error with loss and time left, where that is a terminal.

    Returns:
        The run.

    Raises:
        FileExistsError: ``checkpoint`` exists and ``resume`` is False.
        OSError: ``checkpoint`` cannot be read or written.
        ValueError: a part too short for one window, no observed target, or a checkpoint of other data or settings.
    """
    device = torch.device(device)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists() and not resume:
        raise FileExistsError(f"{path} exists: go on with that run by --resume (resume=True), or choose another place")
    cut = {"steps_in": settings.steps_in, "steps_out": settings.steps_out}
    windows = forecast_windows(splits.train, **cut, stride=settings.stride)
    validation = forecast_windows(splits.validation, **cut)
    for name, part in (("training", windows), ("validation", validation)):
        if not observed(part.targets).any():
            raise ValueError(f"the {name} windows must have an observed target, got none")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(settings.seed)
        run = _Run(splits, settings, device)
        if path is not None and path.exists():
            run.restore(path)
        per_epoch = run.steps_per_epoch(len(windows))
        total = settings.epochs * per_epoch
        with tqdm(total=total, initial=run.step, disable=None if progress else True, leave=False) as bar:
            while not run.ended:
                order = np.random.default_rng([settings.seed, len(run.history)]).permutation(len(windows))
                for place in range(run.step % per_epoch, per_epoch):
                    batch = order[place * settings.batch_size : (place + 1) * settings.batch_size]
                    run.take_step(windows, batch, learning_rate(settings, run.step, total))
                    bar.set_postfix(run.shown(), refresh=False)
                    bar.update()
                    if path is not None and run.step % CHECKPOINT_STEPS == 0 and run.step % per_epoch:
                        run.save(path)
                run.end_epoch(validation)
                if path is not None:
                    run.save(path)
        run.model.load_state_dict(run.best_weights)
        return Training(run.model.eval(), settings, splits.scaler, tuple(run.history))


def evaluate(training: Training, splits: Splits, *, roads: SyntheticRoads | None = None) -> Evaluation:
    """Errors on the test windows, pooled, beside the forecasts that need no training.

    Args:
        training: a run on ``splits``.
        splits: the data.
        roads: where the data are synthetic, what is known about them.

    Returns:
        The errors.
    """
    settings = training.settings
    windows = forecast_windows(splits.test, steps_in=settings.steps_in, steps_out=settings.steps_out)
    forecasts = {
        "forecaster": training.forecast(windows),
        "persistence": Persistence.fit(splits.train).forecast(windows),
        "daily profile": DailyProfile.fit(splits.train).forecast(windows),
    }
    known = {}
    if roads is not None:
        known["best possible"] = roads.known_errors(windows)
        if settings.spatial != "graph":
            known["best possible from the own sensor"] = roads.known_errors(windows, sees="own sensor")
    return Evaluation({name: pooled_errors(values, windows.targets) for name, values in forecasts.items()}, known)


def write_result(path: str | Path, training: Training, evaluation: Evaluation) -> None:
    """Write settings, history and errors of a run as JSON.

    Raises:
        OSError: the file cannot be written.
    """
    result = {
        "settings": asdict(training.settings),
        "best_epoch": training.best_epoch,
        "history": [asdict(epoch) for epoch in training.history],
        "errors": evaluation.as_numbers(),
    }
    _write_whole(Path(path), json.dumps(result, indent=2).encode() + b"\n")


class _Run:
    """A run in progress: what a checkpoint holds, and what is done to it."""

    def __init__(self, splits: Splits, settings: Settings, device: torch.device) -> None:
        self.settings, self.scaler, self.device = settings, splits.scaler, device
        # Whose checkpoint it is.
        self.owner = {"settings": asdict(settings), "data": _digest(splits), "device": device.type}
        self.model = Forecaster(
            splits.train.values.shape[1],
            size=PRESETS[settings.preset],
            variant=VARIANTS[settings.variant],
            spatial=settings.spatial,
            readout=settings.readout,
            steps_in=settings.steps_in,
            steps_out=settings.steps_out,
            dtype=torch.float32,
        ).to(device)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), weight_decay=settings.weight_decay)
        self.step = 0
        self.history: list[Epoch] = []
        self.best_weights = self._weights()
        # Of the epoch in progress: the sum of absolute errors, and of how many targets.
        self.error_sum, self.error_count = 0.0, 0

    @property
    def ended(self) -> bool:
        done = len(self.history)
        return done == self.settings.epochs or (done > 0 and done - _best_epoch(self.history) >= self.settings.patience)

    def steps_per_epoch(self, windows: int) -> int:
        return -(-windows // self.settings.batch_size)

    def shown(self) -> dict[str, float]:
        """What the progress bar says."""
        numbers = {"loss": self.error_sum / max(self.error_count, 1)}
        if self.history:
            numbers["validation"] = self.history[-1].validation_mae
        return numbers

    def take_step(self, windows: ForecastWindows, batch: NDArray[np.int64], rate: float) -> None:
        self.model.train()
        targets = windows.targets[batch]
        seen = observed(targets)
        forecast = self.scaler.unscale(self.model(_features(self.scaler, windows, batch, self.device)))
        loss = masked_absolute_error(forecast, _tensor(targets, self.device), torch.from_numpy(seen).to(self.device))
        self.optimiser.param_groups[0]["lr"] = rate
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip, error_if_nonfinite=True)
        self.optimiser.step()
        count = int(seen.sum())
        self.error_sum += loss.item() * count
        self.error_count += count
        self.step += 1

    def end_epoch(self, validation: ForecastWindows) -> None:
        self.model.eval()
        pool = PooledErrors(self.settings.steps_out)
        for start in range(0, len(validation), self.settings.batch_size):
            batch = slice(start, start + self.settings.batch_size)
            pool.add(_forecast(self.model, self.scaler, validation, batch), validation.targets[batch])
        errors = pool.errors()
        seen = errors.counts > 0
        mae = float(errors.mae[seen] @ errors.counts[seen] / errors.counts.sum())
        self.history.append(Epoch(self.error_sum / max(self.error_count, 1), mae))
        self.error_sum, self.error_count = 0.0, 0
        if _best_epoch(self.history) == len(self.history):
            self.best_weights = self._weights()

    def save(self, path: Path) -> None:
        content = {
            **self.owner,
            "model": self.model.state_dict(),
            "best_weights": self.best_weights,
            "optimiser": self.optimiser.state_dict(),
            "random": self._random_state(),
            "step": self.step,
            "history": [asdict(epoch) for epoch in self.history],
            "error_sum": self.error_sum,
            "error_count": self.error_count,
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        _write_whole(path, buffer.getvalue())

    def restore(self, path: Path) -> None:
        content = _load_checkpoint(path)
        for key, value in self.owner.items():
            if content[key] != value:
                raise ValueError(f"{path} is the checkpoint of another run: {_difference(key, content[key], value)}")
        self.model.load_state_dict(content["model"])
        self.best_weights = content["best_weights"]
        self.optimiser.load_state_dict(content["optimiser"])
        self.step, self.history = content["step"], [Epoch(**epoch) for epoch in content["history"]]
        self.error_sum, self.error_count = content["error_sum"], content["error_count"]
        torch.set_rng_state(content["random"][0])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(content["random"][1], self.device)

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def _random_state(self) -> list[Tensor]:
        cuda = [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else []
        return [torch.get_rng_state(), *cuda]


def _best_epoch(history: list[Epoch] | tuple[Epoch, ...]) -> int:
    """The first epoch of the least validation error, from 1."""
    return int(np.argmin([epoch.validation_mae for epoch in history])) + 1


def _tensor(values: NDArray[np.float64], device: torch.device) -> Tensor:
    return torch.from_numpy(values.astype(np.float32)).to(device)


def _features(
    scaler: Scaler, windows: ForecastWindows, batch: NDArray[np.int64] | slice, device: torch.device
) -> Tensor:
    return _tensor(input_features(windows.inputs[batch], windows.inputs_time[batch], scaler), device)


def _forecast(model: Forecaster, scaler: Scaler, windows: ForecastWindows, batch: slice) -> NDArray[np.float64]:
    """The forecast of a batch of windows in the raw unit, (N, steps_out, S)."""
    device = next(model.parameters()).device
    with torch.no_grad():
        scaled = model(_features(scaler, windows, batch, device))
    return scaler.unscale(scaled.cpu().numpy().astype(np.float64))


def _digest(splits: Splits) -> str:
    """Tells one series from another."""
    digest = hashlib.sha256()
    for part in (splits.train, splits.validation):
        for values in (part.values, part.time_of_day):
            digest.update(str(values.shape).encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _difference(key: str, theirs: Any, ours: Any) -> str:
    if key == "data":
        return "its readings differ"
    if key == "settings":
        key = next(name for name in ours if theirs.get(name) != ours[name])
        theirs, ours = theirs.get(key), ours[key]
    return f"its {key} is {theirs!r}, not {ours!r}"


def _load_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint: tensors and plain values, no code is run."""
    keys = {"settings", "data", "device", "model", "best_weights", "optimiser", "random", "step", "history"}
    # Anything but the archives that torch.save writes is turned away unread.
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path} is not a checkpoint: not an archive of torch.save, or only a part of one")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise ValueError(f"{path} is not a checkpoint: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict) or not keys <= content.keys():
        raise ValueError(f"{path} is not a checkpoint of this program")
    return content


def _write_whole(path: Path, content: bytes) -> None:
    """The file has either its old content or the new one, whenever the program or the machine stops."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
