"""What a model is made of, read from its config.json: sizes, linear layers, numbers in its tensors.

It says the same as the modules of `trainer.models`, and a test compares the two; but here nothing is built,
so it costs nothing and needs no Paddle.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

Content = Mapping[str, Any]


class Cut(Enum):
    """What of a linear layer each rank of a tensor group has."""

    COLUMNS = "some of its outputs"
    ROWS = "some of its inputs"
    NONE = "all of it"


@dataclass(frozen=True)
class Linear:
    """A linear layer that every decoder layer has once.

    Attributes:
        path: in the files, with {} for the number of the decoder layer.
        shares_input: one matrix in memory with the layer before it, so it needs no input of its own.
        of_keys: it gives keys or values, which every rank has whole where their heads do not divide.
    """

    path: str
    inputs: int
    outputs: int
    cut: Cut
    bias: bool = False
    shares_input: bool = False
    of_keys: bool = False

    def local(self, tensor: int) -> tuple[int, int]:
        """Inputs and outputs on a rank of a tensor group of this size."""
        inputs = self.inputs // tensor if self.cut is Cut.ROWS else self.inputs
        return inputs, self.outputs // tensor if self.cut is Cut.COLUMNS else self.outputs

    def numbers(self, tensor: int) -> int:
        """Numbers in the matrix and the bias on a rank."""
        inputs, outputs = self.local(tensor)
        return inputs * outputs + (outputs if self.bias else 0)


@dataclass(frozen=True)
class Architecture:
    """The sizes of a decoder.

    Attributes:
        inner_tensors: tensors of inner width that a token leaves behind in the MLP for its backward pass.
        kv_heads, head_dim: key heads, and the width of every head.
        linears: the linear layers of a decoder layer.
        layer_vectors: numbers of the norms of a decoder layer.
        embedding_vectors, final_vectors: numbers of the norms behind the embedding and before the head.
        tied: the head is the embedding.
        alibi: positions enter as biases of attention.
        attention_dropout: share of dropped attention weights.
    """

    vocabulary: int
    hidden: int
    inner: int
    inner_tensors: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    linears: tuple[Linear, ...]
    layer_vectors: int
    embedding_vectors: int
    final_vectors: int
    tied: bool
    alibi: bool
    attention_dropout: float

    @classmethod
    def of(cls, content: Content, options: Content | None = None) -> "Architecture | None":
        """What a config.json tells; None when it tells no model that this version has.

        Args:
            options: fields of it that the arguments of a job set differently.
        """
        read = FAMILIES.get(str(content.get("model_type")))
        try:
            return read({**content, **(options or {})}) if read else None
        except _UnknownSizeError:
            return None

    @property
    def query_width(self) -> int:
        """Numbers in the queries of one token."""
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Numbers in the keys of one token."""
        return self.kv_heads * self.head_dim

    def keys_are_split(self, tensor: int) -> bool:
        """Whether the ranks of a tensor group of this size have key heads of their own."""
        return self.kv_heads % tensor == 0

    def ranks(self, linear: Linear, tensor: int) -> int:
        """Over how many ranks of a tensor group of this size a linear layer is split."""
        return 1 if linear.of_keys and not self.keys_are_split(tensor) else tensor

    def embedding(self, tensor: int = 1) -> int:
        """Numbers in the token embedding on a rank, filled up to equal parts."""
        return -(-self.vocabulary // tensor) * self.hidden

    def layer(self, tensor: int = 1) -> int:
        """Numbers in one decoder layer on a rank."""
        numbers = sum(linear.numbers(self.ranks(linear, tensor)) for linear in self.linears)
        return numbers + self.layer_vectors

    @property
    def parameters(self) -> int:
        """Numbers in the whole model; a tied head counts once."""
        ends = self.embedding() * (1 if self.tied else 2) + self.embedding_vectors + self.final_vectors
        return ends + self.layers * self.layer()


class _UnknownSizeError(Exception):
    """A size is missing or none."""


def _size(content: Content, names: tuple[str, ...], default: int | None = None) -> int:
    """The size under the first of its names that is there."""
    value = next((content[name] for name in names if name in content), default)
    if type(value) is not int or value < 1:
        raise _UnknownSizeError
    return value


def _share(content: Content, name: str) -> float:
    value = content.get(name, 0.0)
    return float(value) if isinstance(value, int | float) else 0.0


def _gemma(content: Content) -> Architecture:
    """Defaults are those of the published 7b."""
    hidden = _size(content, ("hidden_size",), 3072)
    inner = _size(content, ("intermediate_size",), 24576)
    heads = _size(content, ("num_attention_heads",), 16)
    kv_heads = _size(content, ("num_key_value_heads",), 16)
    head_dim = _size(content, ("head_dim",), 256)
    bias = bool(content.get("attention_bias"))
    fused_keys, fused_gate = (
        bool(content.get(name)) for name in ("fuse_attention_qkv", "fuse_attention_ffn")
    )
    attention, mlp = "model.layers.{}.self_attn.", "model.layers.{}.mlp."
    queries, keys = heads * head_dim, kv_heads * head_dim
    return Architecture(
        vocabulary=_size(content, ("vocab_size",), 256000),
        hidden=hidden,
        inner=inner,
        inner_tensors=4,
        layers=_size(content, ("num_hidden_layers",), 28),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        linears=(
            Linear(attention + "q_proj", hidden, queries, Cut.COLUMNS, bias),
            Linear(attention + "k_proj", hidden, keys, Cut.COLUMNS, bias, fused_keys, of_keys=True),
            Linear(attention + "v_proj", hidden, keys, Cut.COLUMNS, bias, fused_keys, of_keys=True),
            Linear(attention + "o_proj", queries, hidden, Cut.ROWS, bias),
            Linear(mlp + "gate_proj", hidden, inner, Cut.COLUMNS),
            Linear(mlp + "up_proj", hidden, inner, Cut.COLUMNS, shares_input=fused_gate),
            Linear(mlp + "down_proj", inner, hidden, Cut.ROWS),
        ),
        layer_vectors=2 * hidden,
        embedding_vectors=0,
        final_vectors=hidden,
        tied=content.get("tie_word_embeddings", True) is not False,
        alibi=bool(content.get("alibi")),
        attention_dropout=_share(content, "attention_dropout"),
    )


def _bloom(content: Content) -> Architecture:
    """Width, layers and heads have no defaults."""
    hidden = _size(content, ("hidden_size", "n_embed", "n_embd"))
    heads = _size(content, ("n_head", "num_attention_heads"))
    if hidden % heads:
        raise _UnknownSizeError
    attention, mlp = "transformer.h.{}.self_attention.", "transformer.h.{}.mlp."
    return Architecture(
        vocabulary=_size(content, ("vocab_size",), 250880),
        hidden=hidden,
        inner=4 * hidden,
        inner_tensors=2,
        layers=_size(content, ("n_layer", "num_hidden_layers")),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        linears=(
            Linear(attention + "query_key_value", hidden, 3 * hidden, Cut.COLUMNS, bias=True),
            Linear(attention + "dense", hidden, hidden, Cut.ROWS, bias=True),
            Linear(mlp + "dense_h_to_4h", hidden, 4 * hidden, Cut.COLUMNS, bias=True),
            Linear(mlp + "dense_4h_to_h", 4 * hidden, hidden, Cut.ROWS, bias=True),
        ),
        layer_vectors=4 * hidden,
        embedding_vectors=2 * hidden,
        final_vectors=2 * hidden,
        tied=content.get("tie_word_embeddings", True) is not False,
        alibi=True,
        attention_dropout=_share(content, "attention_dropout"),
    )


#: How each family's config.json is read.
FAMILIES: Mapping[str, Callable[[Content], Architecture]] = {"gemma": _gemma, "bloom": _bloom}
