"""What the regularisers do to the layer's weights and Jacobian (A5): every Bernoulli pattern, no sampling."""

import math

import pytest
import torch
from torch.func import jacrev

from attention import (
    DiagonalDropout,
    DiagonalMask,
    DiagonalPenalty,
    DiagonalWeightDropout,
    TemporalAttention,
    WeightDropout,
    regularisers,
)
from tests.evidence import agree, claim


class EveryDraw:
    """Stands in for ``regularisers.bernoulli``: one pattern of booleans, and its probability, at a time."""

    def __init__(self) -> None:
        self.turn = 0
        self.size = 0
        self.probability = 1.0

    def __call__(self, p, shape, device=None):
        self.size = math.prod(shape)
        bits = torch.tensor([bool(self.turn >> place & 1) for place in range(self.size)]).reshape(shape)
        true = int(bits.sum())
        self.probability = p**true * (1 - p) ** (self.size - true)
        return bits


def every_outcome(monkeypatch, run):
    """(probability, run()) for every pattern that one call of ``run`` may draw."""
    draw = EveryDraw()
    monkeypatch.setattr(regularisers, "bernoulli", draw)
    outcomes = []
    while draw.turn == 0 or draw.turn < 2**draw.size:
        result = run()
        outcomes.append((draw.probability, result))
        draw.turn += 1
    assert len(outcomes) == 2**draw.size > 1
    assert math.isclose(sum(probability for probability, _ in outcomes), 1.0)
    return outcomes


def mean(outcomes, of=lambda result: result):
    return torch.stack([probability * of(result) for probability, result in outcomes]).sum(0)


def layer_and_tokens(tokens=3, width=2, num_heads=1, **options):
    torch.manual_seed(5)
    layer = TemporalAttention(width, num_heads, **options)
    return layer, 2 * torch.randn(tokens, width)


def with_the_weights_of(layer, **options):
    other = TemporalAttention(layer.d_model, layer.num_heads, **options)
    other.load_state_dict(layer.state_dict())
    return other


def weights_of(layer, x, which: bool | str = True):
    return layer(x, return_weights=which)[1]


def blocks(layer, x):
    """(T, T, d, d)."""
    return jacrev(layer)(x).movedim(2, 1)


def own(weights):
    return weights.diagonal(dim1=-2, dim2=-1)


@claim("A5.penalty", "property")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("b", [-0.05, -0.1, -3.0])
def test_penalty_lowers_the_logit_of_the_diagonal(b, training):
    plain, x = layer_and_tokens(tokens=5, num_heads=2)
    a = weights_of(plain, x)
    penalised = weights_of(with_the_weights_of(plain, diagonal=DiagonalPenalty(b)).train(training), x)
    agree(torch.logit(own(penalised)), torch.logit(own(a)) + b)
    expected = a * ((1 - own(penalised)) / (1 - own(a))).unsqueeze(-1)
    off = ~torch.eye(5, dtype=torch.bool)
    agree(penalised[..., off], expected[..., off])


@claim("A5.penalty", "property")
def test_mask_is_the_limit_of_the_penalty():
    plain, x = layer_and_tokens(tokens=5, num_heads=2)
    masked = with_the_weights_of(plain, diagonal=DiagonalMask())
    assert (own(weights_of(masked, x)) == 0).all()
    agree(with_the_weights_of(plain, diagonal=DiagonalPenalty(-700.0))(x), masked(x))


@claim("A5.score-dropout", "property")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("p", [0.2, 0.7])
def test_score_dropout_mixes_the_plain_and_the_masked_layer(monkeypatch, p, shared):
    plain, x = layer_and_tokens(num_heads=2 if shared else 1)
    dropped = with_the_weights_of(plain, diagonal=DiagonalDropout(p, shared=shared))
    masked = with_the_weights_of(plain, diagonal=DiagonalMask())
    outcomes = every_outcome(
        monkeypatch, lambda: (weights_of(dropped, x, "after dropout"), dropped(x), blocks(dropped, x))
    )
    a = weights_of(plain, x)
    for _, (weights, _, _) in outcomes:
        agree(weights.sum(-1), torch.ones_like(weights[..., 0]))
    expected = (1 - p) * a + p * a / (1 - own(a)).unsqueeze(-1)
    eye = torch.eye(3, dtype=torch.bool)
    agree(mean(outcomes, lambda result: result[0]), torch.where(eye, (1 - p) * a, expected))
    agree(mean(outcomes, lambda result: result[1]), (1 - p) * plain(x) + p * masked(x))
    agree(mean(outcomes, lambda result: result[2]), (1 - p) * blocks(plain, x) + p * blocks(masked, x))


@claim("A5.weight-dropout", "property")
@pytest.mark.parametrize("p", [0.1, 0.6])
def test_dropout_after_the_softmax_keeps_the_mean(monkeypatch, p):
    plain, x = layer_and_tokens()
    a = weights_of(plain, x)
    cases = {
        "all": ({"dropout": WeightDropout(p)}, p / (1 - p) * a.square().sum(-1)),
        "diagonal": ({"diagonal": DiagonalWeightDropout(p)}, p / (1 - p) * own(a).square()),
    }
    for options, variance in cases.values():
        layer = with_the_weights_of(plain, **options)
        outcomes = every_outcome(
            monkeypatch,
            lambda layer=layer: (weights_of(layer, x, "after dropout"), layer(x), blocks(layer, x)),
        )
        agree(mean(outcomes, lambda result: result[0]), a)
        agree(mean(outcomes, lambda result: (result[0].sum(-1) - 1).square()), variance)
        agree(mean(outcomes, lambda result: result[1]), plain(x))
        agree(mean(outcomes, lambda result: result[2]), blocks(plain, x))


def test_only_the_diagonal_is_dropped_where_so_named(monkeypatch):
    layer, x = layer_and_tokens(diagonal=DiagonalWeightDropout(0.3))
    a = weights_of(layer, x)
    off = ~torch.eye(3, dtype=torch.bool)
    for _, weights in every_outcome(monkeypatch, lambda: weights_of(layer, x, "after dropout")):
        agree(weights[..., off], a[..., off])


def test_the_draw_is_shared_only_where_so_named():
    x = torch.randn(4, 5, 6, 8)
    for shared, distinct in ((True, False), (False, True)):
        layer = TemporalAttention(8, 2, diagonal=DiagonalDropout(0.5, shared=shared))
        torch.manual_seed(0)
        dropped = own(weights_of(layer, x, "after dropout")) == 0  # (4, 5, 2, 6)
        assert 0 < int(dropped.sum()) < dropped.numel()
        for axis in range(3):
            assert bool((dropped != dropped.narrow(axis, 0, 1)).any()) is distinct


def test_shared_dropout_is_that_of_the_public_code():
    # Its layer: T Bernoullis pick the diagonal entries of one additive mask for the whole call.
    layer = TemporalAttention(8, 2, diagonal=DiagonalDropout(0.4, shared=True), residual=False)
    builtin = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    projections = layer.projections()
    with torch.no_grad():
        builtin.in_proj_weight.copy_(torch.cat([projections[name] for name in ("w_q", "w_k", "w_v")]))
        builtin.in_proj_bias.copy_(torch.cat([projections[name] for name in ("b_q", "b_k", "b_v")]))
        builtin.out_proj.load_state_dict(layer.output.state_dict())
    x = torch.randn(3, 12, 8)
    for seed in range(3):
        torch.manual_seed(seed)
        found = layer(x)
        torch.manual_seed(seed)
        picked = regularisers.bernoulli(0.4, torch.Size((12,)), x.device)
        additive = torch.zeros(12, 12).masked_fill(torch.diag(picked), -torch.inf)
        agree(found, builtin(x, x, x, attn_mask=additive)[0])


@pytest.mark.parametrize(
    "options",
    [
        {"diagonal": DiagonalDropout(0.9)},
        {"diagonal": DiagonalDropout(0.9, shared=True)},
        {"diagonal": DiagonalWeightDropout(0.9)},
        {"dropout": WeightDropout(0.9)},
    ],
)
def test_dropouts_are_off_in_evaluation_and_at_zero(options):
    plain, x = layer_and_tokens(tokens=6)
    agree(with_the_weights_of(plain, **options).eval()(x), plain(x))
    zero = {name: type(regulariser)(0.0) for name, regulariser in options.items()}
    agree(with_the_weights_of(plain, **zero)(x), plain(x))
    torch.manual_seed(0)
    assert not torch.equal(with_the_weights_of(plain, **options)(x), plain(x))


def test_bernoulli_has_its_probability():
    # Hoeffding: 10^6 draws are further than 0.0035 from the mean with probability below 5e-11; fixed seed.
    torch.manual_seed(0)
    for p in (0.1, 0.5, 0.8):
        share = regularisers.bernoulli(p, torch.Size([1000, 1000]), torch.device("cpu")).double().mean()
        assert abs(float(share) - p) <= 0.0035
    assert not regularisers.bernoulli(0.0, torch.Size([1000]), torch.device("cpu")).any()
    assert regularisers.bernoulli(1.0, torch.Size([1000]), torch.device("cpu")).all()


@pytest.mark.parametrize("kind", [DiagonalDropout, DiagonalWeightDropout, WeightDropout])
def test_probabilities_are_checked(kind):
    for p in (-0.1, 1.0, 2, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"p must lie in \[0, 1\), got"):
            kind(p)
    for p in ("0.1", None, True, torch.tensor(0.1)):
        with pytest.raises(TypeError, match="p must be a real number, got"):
            kind(p)


def test_penalties_are_checked():
    for b in (0.0, 0.1, -math.inf, math.nan):
        with pytest.raises(ValueError, match="b must be finite and below 0"):
            DiagonalPenalty(b)
    with pytest.raises(TypeError, match=r"b must be a real number, got '-0\.1'"):
        DiagonalPenalty("-0.1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="shared must be True or False, got 1"):
        DiagonalDropout(0.2, shared=1)  # pyright: ignore[reportArgumentType]


def test_regularisers_are_values():
    assert DiagonalDropout(0.2) == DiagonalDropout(0.2) != DiagonalDropout(0.2, shared=True)
    assert repr(DiagonalPenalty(-0.1)) == "DiagonalPenalty(b=-0.1)"
    with pytest.raises(AttributeError):
        DiagonalDropout(0.2).p = 0.5  # pyright: ignore[reportAttributeAccessIssue]
