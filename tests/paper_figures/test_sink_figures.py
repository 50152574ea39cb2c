"""The figures of Part B against computations that share no code with them: elementary geometry, closed forms, loops."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch

import attention
import numerics
from paper_figures import hard_switch, oversmoothing_depth, price_against_rank, sink_geometry, style
from paper_figures.settings import Settings
from paper_figures.tables import from_csv, to_csv
from tests.evidence import agree, at_most

Tables = dict[str, dict[str, np.ndarray]]


def quick_tables(module, seed: int = 0) -> Tables:
    """What ``draw`` would get: the tables of a quick run, through their CSV."""
    computed = module.compute(Settings(quick=True, seed=seed))
    return {name: from_csv(to_csv(table)) for name, table in computed.items()}


def drawn(module, tables: Tables):
    with style.look():
        figure = module.draw(tables)
        figure.draw_without_rendering()
    return figure


def where(table: dict[str, np.ndarray], **wanted) -> dict[str, np.ndarray]:
    """The rows with those values."""
    here = np.logical_and.reduce([table[name] == value for name, value in wanted.items()])
    return {name: column[here] for name, column in table.items()}


@pytest.fixture(scope="module")
def geometry() -> Tables:
    return quick_tables(sink_geometry)


@pytest.fixture(scope="module")
def prices() -> Tables:
    return quick_tables(price_against_rank)


@pytest.fixture(scope="module")
def switch() -> Tables:
    return quick_tables(hard_switch)


@pytest.fixture(scope="module")
def depth() -> Tables:
    return quick_tables(oversmoothing_depth)


def cloud_of(geometry: Tables, panel: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (n, 2) and sink (2,)."""
    points = where(geometry["points"], panel=panel)
    places = np.stack([points["x"], points["y"]], -1)
    return places[points["token"] > 0], places[points["token"] == 0][0]


def distance_to_segments(cloud: np.ndarray, target: np.ndarray) -> float:
    """To the nearest segment between two points of the plane: to their hull, for a target outside of it."""
    found = []
    for start, end in combinations(cloud, 2):
        share = np.clip((target - start) @ (end - start) / ((end - start) @ (end - start)), 0, 1)
        found.append(math.hypot(*(target - start - share * (end - start))))
    return min(found)


def surrounded(cloud: np.ndarray, target: np.ndarray) -> bool:
    """Seen from the target no two neighbouring directions are half a turn or more apart."""
    angles = np.sort(np.arctan2(*(cloud - target).T))
    return bool(np.diff(angles, append=angles[0] + 2 * np.pi).max() < np.pi)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sink_geometry_is_elementary_geometry(seed):
    geometry = quick_tables(sink_geometry, seed)
    for panel, zero_inside in (("as given", False), ("centred", True)):
        fact = where(geometry["facts"], panel=panel)
        cloud, sink = cloud_of(geometry, panel)
        assert surrounded(cloud, np.zeros(2)) is zero_inside
        assert not surrounded(cloud, sink)
        g_q = 0.0 if zero_inside else distance_to_segments(cloud, np.zeros(2))
        g_k = distance_to_segments(cloud, sink)
        agree(np.array([fact["g_q"][0], fact["g_k"][0]]), np.array([g_q, g_k]), tolerance="program")
        if zero_inside:
            assert math.isinf(fact["price"][0])
        else:
            agree(fact["price"][0], 1 / (g_q * g_k), tolerance="program")
            agree(fact["least_margin"][0], 1.0, tolerance="program")


def test_sink_geometry_prices_agree_with_a_convex_program(geometry):
    cloud, sink = cloud_of(geometry, "as given")
    fact = where(geometry["facts"], panel="as given")
    agree(fact["price"][0], numerics.sink_program(cloud, sink, norm="fro").value, tolerance="program")


def test_sink_geometry_certificate_mixes_the_tokens_to_zero(geometry):
    cloud, _ = cloud_of(geometry, "centred")
    points = where(geometry["points"], panel="centred")
    weights = points["zero_weight"][points["token"] > 0]
    assert (weights >= 0).all()
    agree(weights.sum(), 1.0, tolerance="program")
    agree(weights @ cloud, np.zeros(2), tolerance="program", scale=1.0)
    assert where(geometry["facts"], panel="centred")["proven"][0] == 1


def test_price_against_rank_meets_the_known_prices(prices):
    ranks = prices["ranks"]
    n = ranks["n"][0]
    assert math.isinf(ranks["price"][0]), "three tokens or more have no diagonal of rank 1"
    at = dict(zip(ranks["rank"].tolist(), ranks["price"].tolist(), strict=True))
    # Evenly on a circle; the corners +-e_k of a cross-polytope; a simplex; and no rank beats the simplex.
    agree(at[2], n / (1 - math.cos(2 * math.pi / n)), tolerance="program")
    agree(at[n // 2], float(n), tolerance="program")
    agree(at[n - 1], n - 1.0, tolerance="program")
    assert (np.diff(ranks["price"][1:]) <= 0).all()
    agree(ranks["least"], np.full(len(ranks["least"]), n - 1.0), tolerance="program")


def test_price_against_rank_lines_and_marks_are_the_closed_forms(prices):
    for table, columns in (("closed", ("circle", "scatter_bound")), ("searched", ("rank_2", "any_rank"))):
        n = prices[table]["n"]
        circle, free = (prices[table][name] for name in columns)
        agree(circle, n / (1 - np.cos(2 * np.pi / n)), tolerance="program")
        agree(free, n - 1.0, tolerance="program")
        agree(prices[table]["sink"], n / np.sqrt(n + 1), tolerance="program")
    assert (prices["searched"]["sink_rank"] == 1).all()


def test_hard_switch_rows_are_attention_between_the_two_lines(switch):
    generator = Settings().generator()
    tokens_of, w_v = hard_switch.tokens_and_values(generator)
    tokens = tokens_of["outside"]
    width = tokens.shape[1]
    w_q, w_k, _ = torch.randn(3, width, width, generator=generator, dtype=torch.float64) / width**0.5
    factor, lead = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    bias = torch.zeros(len(tokens), len(tokens), dtype=torch.float64)
    bias[:, 0] = 12 * lead - 2
    values = tokens @ w_v.T
    output, weights = attention.attend(10 ** (2 * factor - 1) * tokens @ w_q.T, tokens @ w_k.T, values, bias=bias)
    row = where(switch["rows"], case="outside", layer=0)
    assert len(row["i"]) > 0
    agree(row["open"], 1 - weights[row["i"], 0], tolerance="program")
    agree(row["output"], (output.norm(dim=-1) / values.norm(dim=-1).max())[row["i"]], tolerance="program")


def test_hard_switch_lower_line_is_the_distance_to_the_hull(switch):
    """Every mixture of the values is as far from 0 as the line says; mixtures of their halves come close to it."""
    tokens_of, w_v = hard_switch.tokens_and_values(Settings().generator())
    for case, tokens in tokens_of.items():
        values = tokens[1:] @ w_v.T
        lower = where(switch["sides"], case=case)["lower"][0] * float(values.norm(dim=-1).max())
        # Frank and Wolfe's steps to the nearest point: slow, sure, and nobody else's code.
        nearest = values.mean(0)
        for _ in range(2000):
            corner = values[(values @ nearest).argmin()]
            way = corner - nearest
            share = float((-(nearest @ way) / (way @ way).clamp_min(1e-30)).clamp(0, 1))
            nearest = nearest + share * way
        assert lower <= float(nearest.norm()) * (1 + 1e-6)
        assert float(nearest.norm()) <= lower + 2e-3 * float(values.norm(dim=-1).max())


def test_hard_switch_keeps_its_lines_and_the_smallest_case_is_silent(switch):
    rows = switch["rows"]
    for case in ("outside", "inside"):
        here, side = where(rows, case=case), where(switch["sides"], case=case)
        at_most(here["output"], here["open"] * (1 + 1e-7))
        at_most(side["lower"] * here["open"], here["output"] * (1 + 1e-7))
    score = switch["cancelling"]["score"]
    agree(switch["cancelling"]["open"], 2 * np.cosh(score) / (1 + 2 * np.cosh(score)))
    agree(switch["cancelling"]["output"], 2 * np.sinh(score) / (1 + 2 * np.cosh(score)), tolerance="program")
    still = where(switch["cancelling"], score=0.0)
    assert still["output"].tolist() == [0.0]
    agree(still["open"], np.array([2 / 3]))


def test_hard_switch_copies_stay_below_the_bound_and_reach_it(switch):
    copies = switch["copies"]
    bound = 2 * copies["silence"] / (1 + copies["silence"])
    at_most(copies["weight"], bound * (1 + 1e-7))
    reached = copies["head"] == "opposite"
    agree(copies["weight"][reached] / bound[reached], np.ones(reached.sum()), tolerance="program")
    agree(switch["bound"]["weight"], 2 * switch["bound"]["silence"] / (1 + switch["bound"]["silence"]))


def test_oversmoothing_curves_are_plain_loops(depth):
    generator = Settings().generator()
    shape = (oversmoothing_depth.TOKENS, oversmoothing_depth.WIDTH)
    tokens = 0.5 + torch.randn(shape, generator=generator, dtype=torch.float64)
    for pattern, weights in oversmoothing_depth.layers(generator).items():
        agree(weights.sum(-1), torch.ones(weights.shape[:2], dtype=torch.float64))
        for residual in (0, 1):
            stream = tokens.numpy().copy()
            if pattern == "silent":
                stream[0] = 0
            expected = [stream.var(0).sum() / np.square(stream).sum(1).mean()]
            for layer in weights.numpy():
                stream = residual * stream + oversmoothing_depth.ETA * layer @ stream
                expected.append(stream.var(0).sum() / np.square(stream).sum(1).mean())
            curve = where(depth["draws"], draw=0, pattern=pattern, r=residual)
            np.testing.assert_allclose(curve["relative"], np.array(expected)[curve["layer"]], rtol=1e-5)
            at_most(curve["relative"], curve["bound"] * (1 + 1e-5))


def test_oversmoothing_patterns_are_what_they_are_called():
    layers = oversmoothing_depth.layers(Settings().generator())
    assert ((layers["sparse"] > 0).sum(-1) == oversmoothing_depth.PER_ROW).all()
    assert ((layers["sparse"] > 0).sum(-2) == oversmoothing_depth.PER_ROW).all()
    assert (layers["dense"] > 0).all()
    kept = 1 - oversmoothing_depth.LEAK
    assert (layers["diagonal"].diagonal(dim1=-2, dim2=-1) > kept).all()
    assert (layers["silent"][..., 0] > kept).all()
    assert (layers["silent"][:, 0, 1:] == 0).all()


def test_oversmoothing_exact_patterns_keep_the_relative_dispersion():
    tokens = 0.5 + torch.randn(32, 16, generator=Settings().generator(), dtype=torch.float64)
    for pattern, weights in (("diagonal", numerics.balanced_weights(32, 1)), ("silent", numerics.sink_weights(32))):
        curve = oversmoothing_depth.depth_curve(tokens, pattern, weights.expand(12, -1, -1), 1)
        at_most(curve.relative[0] - curve.relative[-1], torch.tensor(1e-12, dtype=torch.float64))
        agree(curve.relative, curve.relative[:1].expand(13))


def test_oversmoothing_draws_medians_over_draws(depth):
    figure = drawn(oversmoothing_depth, depth)
    lines = [np.asarray(line.get_ydata()) for axes in figure.axes for line in axes.lines]
    for pattern, residual in (("dense", 0), ("sparse", 1), ("silent", 1)):
        medians = [
            np.median(values)
            for layer in range(oversmoothing_depth.DEPTH + 1)
            if len(values := where(depth["draws"], pattern=pattern, r=residual, layer=layer)["relative"]) == 8
        ]
        assert any(len(line) == len(medians) and np.allclose(line, medians, rtol=1e-9) for line in lines), pattern
