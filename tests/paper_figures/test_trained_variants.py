"""The five trained variants: trained once, the same bytes every time, and what is read of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import attention
from paper_figures.settings import DataError, Settings
from paper_figures.trained_variants import (
    NAMES,
    attention_layers,
    best_observed,
    features_of,
    hidden_states,
    in_float64,
    rows_read,
    trained_variants,
    untrained,
)
from tests.evidence import agree

QUICK = Settings(quick=True)


def test_every_variant_is_trained_from_every_seed_once():
    trained = trained_variants(QUICK)
    assert list(trained.runs) == [(variant, seed) for variant in NAMES for seed in (0, 1)]
    assert trained_variants(Settings(quick=True)) is trained
    for (variant, seed), run in trained.runs.items():
        assert (run.settings.variant, run.settings.seed) == (variant, seed)
        assert (run.settings.spatial, run.settings.readout, run.settings.preset) == ("graph", "last", "small")


def test_the_default_dtype_does_not_matter():
    trained = trained_variants(QUICK)
    run = trained.runs["diagonal-dropout", 1]
    torch.set_default_dtype(torch.float32)
    again = attention.train(trained.splits, run.settings)
    assert again.history == run.history
    for first, second in zip(again.model.parameters(), run.model.parameters(), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("variant", NAMES)
def test_untrained_is_what_training_starts_from(variant):
    trained = trained_variants(QUICK)
    run = trained.runs[variant, 1]
    still = attention.train(trained.splits, replace(run.settings, epochs=1, stride=50, learning_rate=1e-30))
    before = untrained(run)
    assert not before.training
    for first, second in zip(before.parameters(), still.model.parameters(), strict=True):
        agree(first, second, scale=1.0)
    first, second = (attention_layers(model)[0].query.weight for model in (before, run.model))
    assert not torch.equal(first, second)


def test_only_the_rows_that_are_read_move_the_forecast():
    trained = trained_variants(QUICK)
    model = in_float64(trained.runs["no-regularisation", 0].model)
    outputs = []
    layers = attention_layers(model)
    for layer in layers:
        layer.register_forward_hook(lambda _, given, out: outputs.append(out.requires_grad_()) or out)
    model(features_of(trained.test_windows, trained.splits, slice(0, 2))).square().sum().backward(inputs=outputs)
    for block, out in enumerate(outputs, start=1):
        moves = out.grad.abs().sum(dim=(0, 1, 3)) > 0
        assert moves.nonzero().flatten().tolist() == rows_read(block, len(layers), 12)


def test_hidden_states_are_those_of_the_blocks_applied_by_hand():
    trained = trained_variants(QUICK)
    model = in_float64(trained.runs["no-residual", 0].model)
    features = features_of(trained.test_windows, trained.splits, slice(0, 3))
    x = model.input(features) + model.positions
    for state, block in zip(hidden_states(model, features), model.blocks, strict=True):
        agree(state, x)
        x = block(x)


def test_the_best_observed_sensors_are_kept_in_the_order_of_the_file():
    values = np.full((20, 4), 50.0)
    values[:3, 0] = values[0, 2] = values[:2, 3] = 0.0
    series = attention.Speeds(values, np.arange(20) / 288, ("a", "b", "c", "d"))
    assert best_observed(series, 2).sensor_ids == ("b", "c")
    assert best_observed(series, 3).sensor_ids == ("b", "c", "d")
    assert best_observed(series, 9).sensor_ids == ("a", "b", "c", "d")


def test_a_data_file_too_short_is_named(tmp_path):
    path = tmp_path / "speeds.csv"
    path.write_text("a,b\n" + "60,61\n59,58\n" * 10)
    with pytest.raises(DataError, match=r"must hold a window of 12 \+ 12 steps"):
        trained_variants(Settings(quick=True, data=path))
