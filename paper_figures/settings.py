"""What a figure may depend on besides its code."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from attention.series import Speeds
from attention.traffic import read_speeds


class DataError(Exception):
    """The data file does not hold what a figure needs; one line for the user."""


@dataclass(frozen=True)
class Settings:
    """The user's choices for one run.

    Attributes:
        quick: fewer draws and smaller sizes; the message stays.
        data: a file of METR-LA speeds, or None.
        probe: a folder that ``python -m attention summarise`` wrote, or None for the project's own ``results/``.
        seed: of everything random.
    """

    quick: bool = False
    data: Path | None = None
    probe: Path | None = None
    seed: int = 0

    def generator(self) -> torch.Generator:
        """A fresh generator on the seed: every call starts the same stream."""
        return torch.Generator().manual_seed(self.seed)

    def speeds(self) -> Tensor | None:
        """The data file's speeds, (steps, sensors), mph, float64; None without a data file.

        Raises:
            DataError: the file is not a table of speeds.
        """
        series = self.series()
        return None if series is None else torch.from_numpy(series.values)

    def series(self) -> Speeds | None:
        """The data file's speeds with their times of day; None without a data file.

        Raises:
            DataError: the file is not a table of speeds.
        """
        if self.data is None:
            return None
        try:
            return read_speeds(self.data)
        except (OSError, ValueError) as error:
            raise DataError(str(error)) from error
