"""The forecaster: shapes, which sensors and steps a forecast can see, and the variants of P1."""

import math

import numpy as np
import pytest
import torch

from attention import (
    PRESETS,
    VARIANTS,
    DiagonalDropout,
    DiagonalMask,
    DiagonalPenalty,
    Forecaster,
    GraphConvolution,
    Scaler,
    Size,
    WeightDropout,
    input_features,
    time_absolute_positions,
)
from tests.evidence import agree

TINY = Size(blocks=2, width=8, heads=2)
SENSORS, STEPS_IN, STEPS_OUT = 3, 5, 4


def forecaster(seed: int = 0, **options) -> Forecaster:
    torch.manual_seed(seed)
    options = {"size": TINY, "steps_in": STEPS_IN, "steps_out": STEPS_OUT} | options
    return Forecaster(SENSORS, **options).eval()


def features(*batch: int) -> torch.Tensor:
    return torch.randn(*batch, SENSORS, STEPS_IN, 4, generator=torch.Generator().manual_seed(1))


def sensitivity(model: Forecaster) -> torch.Tensor:
    """Largest derivative of each target sensor (rows) by each source sensor and step, (S, S, T)."""
    jacobian = torch.func.jacrev(model)(features())
    return jacobian.abs().amax(dim=(0, -1))


def switch_attention_off(model: Forecaster) -> None:
    """Attention adds nothing to the residual, but for a bias."""
    for number in range(len(model.blocks)):
        torch.nn.init.zeros_(model.get_parameter(f"blocks.{number}.attention.output.weight"))


@pytest.mark.parametrize("spatial", ["graph", "published", "none"])
@pytest.mark.parametrize("readout", ["last", "all"])
def test_shapes(spatial, readout):
    model = forecaster(spatial=spatial, readout=readout)
    assert model(features(2)).shape == (2, STEPS_OUT, SENSORS)
    weights = model.attention_weights(features(2))
    assert [w.shape for w in weights] == [(2, SENSORS, 2, STEPS_IN, STEPS_IN)] * 2
    agree(weights[0].sum(dim=-1), torch.ones(2, SENSORS, 2, STEPS_IN))


def test_windows_of_a_batch_do_not_meet():
    model, x = forecaster(), features(3)
    agree(model(x)[1], model(x[1]))


@pytest.mark.parametrize("spatial", ["published", "none"])
def test_no_message_passes_between_sensors(spatial):
    found = sensitivity(forecaster(spatial=spatial)).amax(dim=-1)
    own = torch.eye(SENSORS, dtype=torch.bool)
    assert (found[~own] == 0).all()
    assert (found[own] > 0).all()


def test_the_graph_passes_messages_between_all_sensors():
    assert (sensitivity(forecaster(spatial="graph")) > 0).all()


@pytest.mark.parametrize("spatial", ["graph", "published"])
def test_graph_convolution_is_what_it_says(spatial):
    torch.manual_seed(0)
    convolution = GraphConvolution(SENSORS, 8, spatial=spatial)
    # As P1's public code writes it, and as it reads.
    product = {"published": "nn,bntc->bntc", "graph": "mn,bntc->bmtc"}[spatial]
    x = torch.randn(2, SENSORS, STEPS_IN, 8)
    parts = [x]
    e, f = convolution.source, convolution.target
    for scores in (e @ f.T, f @ e.T):
        adjacency = torch.softmax(torch.relu(scores), dim=1)
        once = torch.einsum(product, adjacency, x)
        parts += [once, torch.einsum(product, adjacency, once)]
    agree(convolution(x), convolution.projection(torch.cat(parts, dim=3)))


def test_forward_and_backward_adjacency_are_learned():
    torch.manual_seed(0)
    convolution = GraphConvolution(SENSORS, 8, spatial="graph")
    forward, backward = convolution.adjacencies()
    agree(forward.sum(dim=-1), torch.ones(SENSORS))
    agree(backward.sum(dim=-1), torch.ones(SENSORS))
    assert not torch.allclose(forward, backward)
    convolution(torch.randn(SENSORS, STEPS_IN, 8)).square().sum().backward()
    for embedding in (convolution.source, convolution.target):
        assert embedding.grad is not None
        assert (embedding.grad != 0).any()


def test_the_variants_are_those_of_the_paper():
    assert {name: (variant.diagonal, variant.residual) for name, variant in VARIANTS.items()} == {
        "no-residual": (None, False),
        "no-regularisation": (None, True),
        "diagonal-mask": (DiagonalMask(), True),
        "diagonal-dropout": (DiagonalDropout(0.2), True),
        "diagonal-penalty": (DiagonalPenalty(-0.1), True),
        "shared-diagonal-dropout": (DiagonalDropout(0.2, shared=True), True),
    }


@pytest.mark.parametrize("name", VARIANTS)
def test_every_block_has_the_variant_and_attention_dropout(name):
    variant = VARIANTS[name]
    for block in forecaster(variant=variant).blocks:
        attention = block.get_submodule("attention")
        assert attention.diagonal == variant.diagonal
        assert attention.residual == variant.residual
        assert attention.dropout == WeightDropout(0.1)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_diagonal_of_each_variant(name):
    plain = forecaster(variant=VARIANTS["no-regularisation"]).attention_weights(features())[0]
    own = forecaster(variant=VARIANTS[name]).attention_weights(features())[0].diagonal(dim1=-2, dim2=-1)
    before = plain.diagonal(dim1=-2, dim2=-1)
    if name == "diagonal-mask":
        assert (own == 0).all()
    elif name == "diagonal-penalty":
        agree(torch.logit(own), torch.logit(before) - 0.1)
    else:
        agree(own, before)


def test_without_the_residual_attention_alone_carries_the_readings():
    for name, moves in (("no-residual", False), ("no-regularisation", True)):
        model = forecaster(variant=VARIANTS[name])
        switch_attention_off(model)
        assert bool((sensitivity(model) > 0).any()) == moves


def test_what_a_forecast_knows_of_earlier_steps_it_has_through_attention():
    model = forecaster()
    assert (sensitivity(model)[..., :-1] > 0).all()
    for readout, sees_earlier_steps in (("last", False), ("all", True)):
        model = forecaster(readout=readout)
        switch_attention_off(model)
        found = sensitivity(model)
        assert (found[..., -1] > 0).all()
        assert bool((found[..., :-1] > 0).any()) == sees_earlier_steps


def test_the_last_token_is_that_of_the_whole_block():
    model = forecaster()
    x = torch.randn(2, SENSORS, STEPS_IN, TINY.width)
    for block in model.blocks:
        agree(block(x, last_alone=True), block(x)[..., -1:, :])


def test_positions_by_hand():
    # d = 4, T = 2: w_0 = 1 * 4/2 = 2, w_1 = 10000^(-1/2) * 4/2 = 0.02.
    expected = [[0, 1, 0, 1], [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)]]
    agree(time_absolute_positions(2, 4), torch.tensor(expected))


def test_positions_tell_steps_apart():
    model = forecaster(attention_dropout=0.0)
    x = features()
    assert not torch.allclose(model(x), model(x[:, [1, 0, 2, 3, 4]]))


def test_features_say_what_is_missing_and_what_time_it_is():
    readings = np.array([[[60.0, 0.0], [50.0, np.nan]]])
    found = input_features(readings, np.array([[0.0, 0.25]]), Scaler(mean=50.0, deviation=10.0))
    first, second = [[1, 1, 0, 1], [0, 1, 1, 0]], [[0, 0, 0, 1], [0, 0, 1, 0]]
    agree(found, np.array([[first, second]], dtype=float), scale=1)


def test_the_paper_s_sizes():
    assert PRESETS["paper"] == Size(blocks=12, width=72, heads=8)
    model = Forecaster(2, size=PRESETS["paper"])
    assert len(model.blocks) == 12
    assert model(torch.randn(2, 12, 4)).shape == (12, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spatial": "graf"}, "spatial must be one of graph, published, none, got 'graf'"),
        ({"readout": "first"}, "readout must be one of last, all, got 'first'"),
        ({"steps_out": 0}, "steps_out must be at least 1, got 0"),
        ({"size": Size(0, 8, 2)}, "blocks must be at least 1, got 0"),
        ({"size": Size(1, 9, 3)}, "even width, got 5 and 9"),
        ({"size": Size(1, 8, 3)}, "multiple of num_heads"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        forecaster(**options)


def test_bad_features_are_named():
    with pytest.raises(ValueError, match=r"features must have shape \(..., S, 5, 4\), got \(3, 4, 4\)"):
        forecaster()(torch.randn(3, 4, 4))
