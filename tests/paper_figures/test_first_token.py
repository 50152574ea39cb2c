"""The figure of first-token bias: its lines are stacked layers, its bands are shares."""

import numpy as np
import pytest
import torch

from paper_figures import first_token
from paper_figures.settings import Settings
from tests.evidence import agree


@pytest.fixture(scope="module")
def shares() -> dict[str, np.ndarray]:
    table = first_token.compute(Settings(quick=True))["shares"]
    return {name: np.array(column) for name, column in table.items()}


def one_layer(model: str) -> torch.Tensor:
    """The layer without content, (T, T), entry by entry."""
    rows, columns = torch.meshgrid(torch.arange(first_token.TOKENS), torch.arange(first_token.TOKENS), indexing="ij")
    if model == "causal attention":
        return (columns <= rows) / (rows + 1.0)
    if model == "bidirectional attention":
        return torch.full(rows.shape, 1 / first_token.TOKENS)
    return ((columns <= rows) & (rows - columns < first_token.KERNEL)) / float(first_token.KERNEL)


@pytest.mark.parametrize("depth", first_token.DEPTHS)
@pytest.mark.parametrize("model", first_token.MODELS)
def test_lines_are_powers_of_one_layer(model, depth, shares):
    last = torch.linalg.matrix_power(one_layer(model), depth)[-1]
    here = (shares["model"] == model) & (shares["L"] == depth)
    agree(torch.from_numpy(shares["share"][here]), last / last.sum())
    agree(torch.from_numpy(shares["kept"][here]), last.sum().expand(first_token.TOKENS), scale=1.0)


@pytest.mark.parametrize("model", first_token.MODELS)
def test_random_stacks_are_shares_of_the_last_output(model):
    stack = first_token.random_stack(first_token.RANDOM_LAYERS[model], torch.Generator().manual_seed(1))
    assert stack.shape == (len(first_token.DEPTHS), first_token.TOKENS)
    assert bool((stack >= 0).all())
    agree(stack.sum(1), torch.ones(len(first_token.DEPTHS)))
