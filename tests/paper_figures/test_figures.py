"""Figures are drawn from their CSV alone, traced by the manifest, and right when computed another way."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import attention
from paper_figures import FIGURES, sensitivity_against_length, sensitivity_maps, style
from paper_figures.random_layer import random_layer
from paper_figures.render import pictures, sha256
from paper_figures.settings import DataError, Settings
from paper_figures.tables import from_csv
from tests.evidence import agree
from tests.paper_figures.conftest import SPEEDS, fits_the_page


def tables_of(name: str, out: Path) -> dict[str, dict[str, np.ndarray]]:
    return {
        path.stem.removeprefix(f"{name}-"): from_csv(path.read_text()) for path in sorted(out.glob(f"{name}-*.csv"))
    }


def drawn(module, tables):
    """The figure in this room's style, laid out."""
    with style.look():
        figure = module.draw(tables)
        figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize("name", FIGURES)
def test_picture_is_drawn_from_the_csv_alone(name, quick_run):
    module = importlib.import_module(f"paper_figures.{name}")
    for kind, picture in pictures(module, tables_of(name, quick_run)).items():
        assert picture == (quick_run / f"{name}.{kind}").read_bytes(), kind


@pytest.mark.parametrize("name", FIGURES)
def test_figure_has_one_message_labelled_axes_and_fits_the_page(name, quick_run):
    module = importlib.import_module(f"paper_figures.{name}")
    figure = drawn(module, tables_of(name, quick_run))
    assert any(figure.get_suptitle() or axes.get_title("left") for axes in figure.axes)
    assert any(axes.get_xlabel() for axes in figure.axes)
    assert any(axes.get_ylabel() for axes in figure.axes)
    fits_the_page(figure)


@pytest.mark.parametrize("name", FIGURES)
def test_manifest_traces_every_file(name, quick_run):
    entry = json.loads((quick_run / "manifest.json").read_text())["figures"][name]
    on_disk = {path.name for pattern in (f"{name}.*", f"{name}-*") for path in quick_run.glob(pattern)}
    assert set(entry["files"]) == on_disk
    for file, digest in entry["files"].items():
        assert sha256((quick_run / file).read_bytes()) == digest, file
    module = importlib.import_module(entry["script"])
    assert (entry["seed"], entry["quick"]) == (0, True)
    assert set(entry["versions"]) == {"python", "numpy", "torch", "matplotlib"}
    if module.READS_DATA and SPEEDS.exists():
        assert entry["data"] == {"file": "los_speed.csv", "sha256": sha256(SPEEDS.read_bytes())}
    else:
        assert entry["data"] is None


def test_outputs_hold_no_folder_of_this_machine_and_no_date(quick_run):
    folders = {str(quick_run), str(Path.cwd()), str(Path.home()) + "/", str(SPEEDS.parent)}
    for path in sorted(quick_run.iterdir()):
        content = path.read_bytes()
        for folder in folders:
            assert folder.encode() not in content, f"{path.name} holds {folder}"
        date = re.search(rb"CreationDate|ModDate|tIME|20\d\d-\d\d-\d\d", content)
        assert not date, f"{path.name} holds a date"


def test_figures_agree_with_the_registry():
    package = Path(sensitivity_maps.__file__).parent
    modules = {path.stem for path in package.glob("*.py") if "\ndef draw(" in path.read_text()}
    assert modules == set(FIGURES)


def autograd_norms(x: torch.Tensor, weights, residual: int) -> torch.Tensor:
    """(T, T) spectral norms of dh_i/dx_j through the reference attention."""
    w_q, w_k, w_v = weights

    def layer(x):
        return attention.attend(x @ w_q.T, x @ w_k.T, x @ w_v.T)[0] + residual * x

    return torch.linalg.matrix_norm(torch.func.jacrev(layer)(x).movedim(2, 1), ord=2)


@pytest.mark.parametrize("residual", [0, 1])
def test_sensitivity_against_length_is_autograd_at_one_point(residual, quick_run):
    table = tables_of("sensitivity_against_length", quick_run)["layers"]
    generator = Settings().generator()
    weights = random_layer(sensitivity_against_length.WIDTH, generator)
    shape = (max(sensitivity_against_length.LENGTHS), sensitivity_against_length.WIDTH)
    x = torch.randn(shape, generator=generator)[:8]
    norms = autograd_norms(x, weights, residual)[0]
    row = (table["layer"] == 0) & (table["T"] == 8) & (table["r"] == residual)
    written = torch.tensor([table["diagonal"][row].item(), table["off_diagonal"][row].item()])
    agree(written, torch.stack([norms[0], norms[1:].mean()]))


def test_sensitivity_against_length_draws_its_medians_bounds_and_limits(quick_run):
    tables = tables_of("sensitivity_against_length", quick_run)
    layers, bands = tables["layers"], tables["bands"]
    figure = drawn(sensitivity_against_length, tables)
    for axes, residual in zip(figure.axes, sensitivity_against_length.RESIDUALS, strict=True):
        lines = [y for line in axes.lines if (y := np.asarray(line.get_ydata())).size]
        assert len(lines) == 6
        for quantity in set(layers) - {"layer", "T", "r"}:
            medians = [
                np.median(layers[quantity][(layers["r"] == residual) & (layers["T"] == length)])
                for length in sensitivity_against_length.LENGTHS
            ]
            shown = bands["median"][(bands["quantity"] == quantity) & (bands["r"] == residual)]
            np.testing.assert_allclose(shown, medians, rtol=1e-8)
            assert any(np.array_equal(line, shown) for line in lines), quantity


def test_sensitivity_against_length_keeps_its_bounds_and_nears_its_limits(quick_run):
    table = tables_of("sensitivity_against_length", quick_run)["layers"]
    for quantity in sensitivity_against_length.MEASURED:
        assert (table[quantity] <= table[f"{quantity}_bound"] * (1 + 1e-9)).all()
        errors = [
            np.median(np.abs(table[quantity][here] / table[f"{quantity}_limit"][here] - 1))
            for here in (table["T"] == 16, table["T"] == 4096)
        ]
        assert errors[1] < errors[0] / 4


def test_sensitivity_maps_draw_the_norms_that_autograd_finds(quick_run):
    tables = tables_of("sensitivity_maps", quick_run)
    generator = Settings().generator()
    weights = random_layer(sensitivity_maps.WIDTH, generator)
    x = torch.randn(max(sensitivity_maps.LENGTHS), sensitivity_maps.WIDTH, generator=generator)[-12:]
    norms = autograd_norms(x, weights, residual=0)
    figure = drawn(sensitivity_maps, tables)
    shown = torch.as_tensor(np.array(figure.axes[0].images[0].get_array()))
    agree(shown, norms)
    first = {name: column[0] for name, column in tables["shares"].items()}
    agree(first["share"], (norms.diagonal() / norms.sum(1)).mean())


def test_real_windows_are_mapped_where_a_data_file_is_given(quick_run):
    if not SPEEDS.exists():
        pytest.skip("needs los_speed.csv in ../shared/data")
    tables = tables_of("sensitivity_maps", quick_run)
    assert set(tables["blocks"]["tokens"].tolist()) == {"random", "METR-LA"}
    panels = drawn(sensitivity_maps, tables).axes
    shapes = [np.array(image.get_array()).shape for axes in panels for image in axes.images]
    assert shapes == [(length, length) for length in sensitivity_maps.LENGTHS] * 2


def test_real_windows_are_standardised_and_embedded_in_one_plane():
    speeds = 60 + 10 * torch.randn(200, 3, generator=torch.Generator().manual_seed(5))
    tokens = sensitivity_maps.metr_la_tokens(speeds, 4, torch.Generator().manual_seed(1))
    assert tokens.shape == (4, 96, sensitivity_maps.WIDTH)
    assert torch.linalg.matrix_rank(tokens.flatten(0, 1)) == 2
    last_hour = tokens[:, -12:].std(1).sum(-1)
    assert torch.equal(last_hour, last_hour.sort(descending=True).values)


def test_missing_readings_never_become_tokens():
    speeds = 60 + 10 * torch.randn(200, 1, generator=torch.Generator().manual_seed(5))
    speeds[[50, 103]] = 0.0  # leaves one whole window, the last 96 steps
    tokens = sensitivity_maps.metr_la_tokens(speeds, 4, torch.Generator().manual_seed(1))
    assert torch.equal(tokens, tokens[:1].expand(4, -1, -1))
    speeds[150] = 0.0
    with pytest.raises(DataError, match="no 96 steps of one sensor without a missing reading"):
        sensitivity_maps.metr_la_tokens(speeds, 4, torch.Generator().manual_seed(1))


def test_without_data_the_maps_say_what_is_left_out():
    tables = sensitivity_maps.compute(Settings(quick=True))
    figure = drawn(sensitivity_maps, {name: from_csv_of(table) for name, table in tables.items()})
    assert "no data file was given" in figure.get_suptitle()
    assert set(tables["blocks"]["tokens"]) == {"random"}


def from_csv_of(table):
    return {name: np.array(column) for name, column in table.items()}
