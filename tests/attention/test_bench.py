"""The comparison with what one would run instead: what it counts, what it prints, and the memory of a map."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import numerics
from attention import bench
from attention.__main__ import main
from numerics.a1_jacobian import CHUNK_ELEMENTS

KIB = 2**10


def test_memory_is_the_bytes_alive_at_once():
    x = torch.ones(KIB, dtype=torch.float32)
    with bench.TensorMemory() as memory:
        y = x + 1  # 4 KiB
        z = (y * 2).sum()  # 4 KiB and 4 bytes more at the peak, then 4 KiB are freed
        x.mul_(3)  # the input's own memory: not counted
        view = y.view(32, 32)  # no memory
        w = view + z  # 4 KiB
    assert memory.peak == 8 * KIB + 4
    assert memory.largest == 4 * KIB
    del w


def test_memory_of_the_backward_pass_and_of_transforms_is_seen():
    x = torch.ones(100)
    with bench.TensorMemory() as memory:
        torch.func.jacrev(lambda x: x.sin())(x)
    assert memory.largest == 100 * 100 * 8
    leaf = torch.ones(KIB, requires_grad=True)
    with bench.TensorMemory() as memory:
        (slope,) = torch.autograd.grad(leaf.square().sum(), leaf)
    assert memory.peak >= slope.nbytes


@pytest.mark.parametrize("norm", ["fro", "spectral"])
def test_a_map_never_holds_all_blocks(norm):
    # Stated in numerics.a1_jacobian: at most about CHUNK_ELEMENTS entries of J at once. J has 2^24 here.
    tokens, width = 512, 8
    x = torch.randn(tokens, width)
    weights = torch.randn(3, width, width)
    rows = range(tokens) if norm == "fro" else range(0, tokens, 16)
    with bench.TensorMemory() as memory:
        found = numerics.sensitivity_map(x, *weights, norm=norm, rows=rows)
    assert found.shape == (len(rows), tokens)
    whole = tokens * tokens * width * width * 8
    assert memory.largest <= 8 * CHUNK_ELEMENTS < whole
    assert memory.peak < whole


def test_both_sides_of_a_comparison_do_the_same():
    for comparison in bench.jacobian_comparisons(5, seed=3):
        assert comparison.same
        torch.testing.assert_close(comparison.run_ours(), comparison.run_rival(), rtol=1e-10, atol=0)
    for comparison in bench.layer_comparisons(2, seed=3):
        assert comparison.run_ours().shape == comparison.run_rival().shape == (2, 12, 72)


def test_sides_that_differ_are_not_timed():
    one = torch.ones(())
    wrong = bench.Comparison("one", "two", lambda: one, lambda: 2 * one)
    with (
        bench.tqdm(disable=True) as bar,
        pytest.raises(RuntimeError, match="one and two differ"),
    ):
        bench.measure(wrong, repeats=1, bar=bar)


def test_it_measures_and_reports():
    measurements = bench.bench(tokens=[3, 4], sequences=2, repeats=3)
    assert len(measurements) == 7
    for m in measurements:
        least, middle, greatest = m.ratios
        assert 0 < least <= middle <= greatest
        assert min(m.seconds) > 0
        assert min(m.peak_bytes) > 0
    text = bench.report(measurements)
    assert len(text.splitlines()) == 4 + 1 + 7
    for name in (
        "jacobian_blocks, T = 3, d = 8",
        "torch.func.jacrev, then norms",
        "need_weights=True",
        "need_weights=False",
        "the limit: the two projections alone",
    ):
        assert name in text


def test_the_command_prints_plain_lines(capfd):
    assert main(["bench", "--tokens", "3", "--sequences", "1", "--repeats", "1"]) == 0
    out, err = capfd.readouterr()
    assert "sensitivity_map, T = 3" in out
    assert "\x1b" not in out
    assert "\r" not in out
    assert err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["sweeep"],
        ["bench", "--tokens", "0"],
        ["bench", "--tokens", "4", "100000"],
        ["bench", "--repeats", "many"],
        ["bench", "--sequences", "-1"],
        ["bench", "--colour"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_exit_code_two(capfd, arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("python -m attention")
    assert err.count("\n") == 1


def test_help_has_examples():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "attention", "bench", "--help"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "python -m attention bench --tokens 32 256" in done.stdout
    assert done.stderr == ""
