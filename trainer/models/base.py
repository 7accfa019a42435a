"""What every causal language model offers, and the part of it that is the same in every family."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from trainer.models.adapter import Adapter, Prefix
from trainer.models.configuration import ModelConfig
from trainer.models.heads import Heads
from trainer.models.layers import Head, SplitEmbedding
from trainer.models.linear import AnyLinear, Fused
from trainer.models.passes import LogProbabilityPass, LossPass, MetricsPass, Pass
from trainer.models.placement import WHOLE, Placement, TensorRank
from trainer.models.sequence import missing_tokens
from trainer.models.weights import Weight, WeightMap, shard_of
from trainer.ops.alibi import Alibi
from trainer.ops.attention import cached_attention, causal_attention
from trainer.ops.branches import BranchedDocuments
from trainer.ops.kv_cache import KVCache
from trainer.ops.linear_cross_entropy import TokenLoss
from trainer.ops.packing import Packing
from trainer.ops.prefix import PrefixedDocuments
from trainer.ops.tensor_group import own_random

# attend(q, k, v, layer): how tokens see each other; q [tokens, heads * head_dim] → the same shape.
Attend = Callable[[Tensor, Tensor, Tensor, int], Tensor]


# What a family prepares once for all layers of a forward pass, such as rotary tables.
Context = Any


@dataclass(frozen=True)
class Stage:
    """One step of the decoder.

    Attributes:
        number: its place among all stages, from 0.
        modules: paths of the modules whose parameters it uses.
        run: `run(x, context, attend)`: hidden states `[tokens, hidden]` from those of the stage before; the
            first one takes token ids `[tokens]`.
    """

    number: int
    modules: tuple[str, ...]
    run: Callable[[Tensor, Context, Attend], Tensor]


class CausalLM(nn.Layer):
    """A decoder with a language-model head.

    A family implements `stages`, sets `lm_head`, and has a `context` where its layers need one. Everywhere:
    `input_ids` int64 `[batch, sequence]`; `position_ids` of the same shape, by default 0, 1, 2, … in each
    row; `attention_mask` of the same shape, 0 = padding (on either side), 1 = real token. Several documents
    may share a row: number their tokens 1, 2, … in `attention_mask` and let their positions restart; they do
    not see each other. Results at padding are zero.

    Attributes:
        config: the family's configuration.
        placement: what of the model is here.
        heads: the attention heads that are here.
        lm_head: the vocabulary projection, where the last stage is.
        dtype: dtype of the parameters, such as "float32".
        alibi_slopes: float32 `[heads here]` when positions enter as linear biases of attention, else None.
        generation_config: content of generation_config.json; kept and written back. None when there is none.
        adapter: what is trained in place of the parameters, which are then frozen; None: they are trained.
        prefix: keys and values in front of every document; None: there are none.
        before_pass: told of the packing of every forward pass before it begins.
        wrap_attention: what a pass uses in place of its attention.
    """

    lm_head: Head

    def __init__(self, config: ModelConfig, placement: Placement = WHOLE) -> None:
        super().__init__()
        self.config = config
        self.placement = placement
        self.heads = Heads.of(config, placement.tensor)
        self.alibi_slopes: np.ndarray | None = None
        self.dtype: str = paddle.get_default_dtype()
        self.generation_config: dict[str, Any] | None = None
        self.adapter: Adapter | None = None
        self.prefix: Prefix | None = None
        self.before_pass: Callable[[Packing], None] | None = None
        self.wrap_attention: Callable[[Attend], Attend] = lambda attend: attend

    @property
    def head_weight(self) -> Tensor:
        """The vocabulary projection, `[vocabulary, hidden]`."""
        return self.lm_head.weight

    @property
    def parameter_dtype(self) -> paddle.dtype:
        """`dtype` as Paddle's."""
        return getattr(paddle, self.dtype)

    def stages(self) -> list[Stage]:
        """The decoder from token ids to final hidden states, in order: the stages that are here.

        Stage 0 is the embedding, then comes one stage for each layer, the last one is the final norm.
        Pipelines are cut between stages.
        """
        raise NotImplementedError

    def context(self, positions: np.ndarray) -> Context:
        """What all layers of one forward pass share, for tokens at `positions [tokens]`."""
        return None

    def decode(self, input_ids: Tensor, positions: np.ndarray, attend: Attend) -> Tensor:
        """Final hidden states `[tokens, hidden]` of packed ids `[tokens]` at `positions [tokens]`."""
        context, x = self.context(positions), input_ids
        for stage in self.stages():
            x = stage.run(x, context, attend)
        return x

    def run(self, work: Pass) -> Tensor:
        """The outcome of a pass, float32 `[size]`."""
        return work.finish(self.lm_head, self.final_states(work.ids, work.packing))

    def prepare(self, packing: Packing) -> tuple[Context, Attend]:
        """What the stages of one forward pass are given besides hidden states."""
        if self.before_pass is not None:
            self.before_pass(packing)
        if self.prefix is None:
            attend = self.wrap_attention(self._packed_attention(packing))
            return self.context(packing.positions), attend
        if packing.branches is not None:
            raise NotImplementedError("documents with branches have no prefix")
        documents = PrefixedDocuments.of(packing.lengths, packing.positions, self.prefix.tokens)
        attend = self._attention(documents.lengths, documents.positions)
        attend = self.wrap_attention(documents.attention(attend, self.prefix.pairs()))
        return self.context(packing.positions + documents.tokens), attend

    def final_states(self, ids: Tensor, packing: Packing) -> Tensor:
        """Final hidden states `[tokens, hidden]` of packed ids `[tokens]`."""
        tokens = ids.shape[0]
        if more := missing_tokens(tokens, self.placement.tensor):
            ids = paddle.concat([ids, paddle.zeros([more], ids.dtype)])
            packing = packing.extended(more)
        x = self._through_stages(ids, *self.prepare(packing))
        return x[:tokens] if more else x

    def forward(
        self, input_ids: Tensor, position_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Logits, float32 `[batch, sequence, vocabulary]`."""
        packing = Packing.of(input_ids, position_ids, attention_mask)
        return packing.unpack(self._logits(self.final_states(packing.pack(input_ids), packing)))

    def hidden_states(
        self, input_ids: Tensor, position_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """What the head sees: `[batch, sequence, hidden]` after the final norm."""
        packing = Packing.of(input_ids, position_ids, attention_mask)
        return packing.unpack(self.final_states(packing.pack(input_ids), packing))

    def loss(
        self,
        input_ids: Tensor,
        labels: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> TokenLoss:
        """Loss of every labelled token.

        Args:
            labels: int64 `[batch, sequence]`; `labels[:, t]` is the token that should follow position t (the
                data is shifted already), -100 where there is none.
        """
        packing = Packing.of(input_ids, position_ids, attention_mask)
        ids, wanted = packing.pack(input_ids), packing.pack(labels)
        tokens = int((labels >= 0).sum())
        if paddle.is_grad_enabled():
            return TokenLoss(self.run(LossPass(ids, packing, wanted))[0], tokens, None)
        total, correct = self.run(MetricsPass(ids, packing, wanted))
        return TokenLoss(total, tokens, int(correct))

    def log_probabilities(
        self,
        input_ids: Tensor,
        labels: Tensor,
        responses: Tensor,
        count: int,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        branches: Tensor | None = None,
    ) -> Tensor:
        """Log-probability of each response, float32 `[count]`: the sum over its labels; differentiable.

        Args:
            labels: as for `loss`.
            responses: int64 `[batch, sequence]`, the number (1 to `count`) of the response that the label at
                this position belongs to; 0 = none.
            branches: int64 `[batch, sequence]`: 0 in what the responses of a document have in common, then
                1, 2, … in each of them; they do not see each other. By default there is nothing of that.
        """
        packing = Packing.of(input_ids, position_ids, attention_mask, branches)
        ids, wanted, owners = (packing.pack(part) for part in (input_ids, labels, responses))
        return self.run(LogProbabilityPass(ids, packing, wanted, owners, count))

    @paddle.no_grad()
    def new_cache(self, batch: int) -> KVCache:
        """A cache for `next_logits`, which holds the prefix and no token yet."""
        cache = KVCache(batch, self.config.num_hidden_layers, self.config.head_dim, self.alibi_slopes)
        if self.prefix is not None:
            shape = batch, self.prefix.tokens
            cache.extend(np.ones(shape, bool), np.broadcast_to(np.arange(shape[1]), shape))
            for layer, (keys, values) in enumerate(self.prefix.pairs()):
                rows = (paddle.tile(x.astype(self.parameter_dtype), [batch, 1]) for x in (keys, values))
                cache.append(layer, *rows)
        return cache

    @paddle.no_grad()
    def next_logits(
        self, ids: np.ndarray, positions: np.ndarray, real: np.ndarray, cache: KVCache | None = None
    ) -> Tensor:
        """Logits after the last column, float32 `[batch, vocabulary]`, for generation.

        Args:
            ids: int64 `[batch, new]`, padded on the left.
            positions: int64 `[batch, new]`.
            real: bool `[batch, new]`, False = padding.
            cache: holds the columns before these and takes these in; None when these are all there are.
        """
        batch, new = ids.shape
        if cache is None:
            masks = paddle.to_tensor(positions), paddle.to_tensor(real.astype(np.int64))
            hidden = self.hidden_states(paddle.to_tensor(ids), *masks)
            return self._logits(hidden[:, -1])
        positions = positions + (self.prefix.tokens if self.prefix else 0)
        cache.extend(real, positions)

        tokens = batch * new
        more = missing_tokens(tokens, self.placement.tensor)

        def attend(q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
            if not more:
                return cached_attention(q, k, v, layer, cache)
            out = cached_attention(q[:tokens], k[:tokens], v[:tokens], layer, cache)
            return paddle.concat([out, paddle.zeros([more, out.shape[1]], out.dtype)])

        flat, places = (np.append(x.reshape(-1), np.zeros(more, np.int64)) for x in (ids, positions))
        hidden = self._through_stages(paddle.to_tensor(flat), self.context(places), attend)
        return self._logits(hidden[:tokens].reshape([batch, new, -1])[:, -1])

    def parameter_names(self) -> WeightMap:
        """Every tensor of the files by its Hugging Face name; an adapter's are not among them."""
        layers = dict(self.named_sublayers())
        added = {weight.parameter.name for weight in self.adapter.weights().values()} if self.adapter else ()
        weights = {}
        for name, parameter in self.named_parameters():
            if parameter.name in added:
                continue
            owner, _, kind = name.rpartition(".")
            for weight in _weights(owner, kind, layers.get(owner), parameter, self.placement.tensor):
                weights[weight.name] = weight
        return weights

    def trained_weights(self) -> WeightMap:
        """The tensors that training changes, by their names on disk: the adapter's, or all of the model."""
        return self.parameter_names() if self.adapter is None else self.adapter.weights()

    def hf_state(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor as it is on disk, one at a time: Hugging Face name and orientation."""
        for name, weight in self.parameter_names().items():
            yield name, weight.turned(weight.parameter)

    def _through_stages(self, ids: Tensor, context: Context, attend: Attend) -> Tensor:
        x = ids
        for stage in self.stages():
            x = stage.run(x, context, attend)
        return x

    def _packed_attention(self, packing: Packing) -> Attend:
        if packing.branches is None:
            return self._attention(packing.lengths, packing.positions)
        documents = BranchedDocuments.of(packing.lengths, packing.positions, packing.branches)
        return documents.attention(self._attention(documents.lengths, documents.positions))

    def _attention(self, lengths: tuple[int, ...], positions: np.ndarray) -> Attend:
        """Attention over packed documents of these lengths at these positions."""
        heads, tensor = self.heads.counts, self.placement.tensor
        dropout = self.config.attention_dropout if self.training else 0.0
        alibi = None if self.alibi_slopes is None else Alibi(self.alibi_slopes, positions)

        def attend(q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
            with own_random() if dropout > 0.0 and tensor is not None else nullcontext():
                return causal_attention(q, k, v, lengths, *heads, alibi=alibi, dropout=dropout)

        return attend

    def _logits(self, hidden: Tensor) -> Tensor:
        return self.lm_head(hidden, None, "logits")


def _weights(
    owner: str, kind: str, layer: nn.Layer | None, parameter: Tensor, tensor: TensorRank | None
) -> Iterator[Weight]:
    """The tensors of the files that the parameter `kind` of the module `owner` holds."""
    transposed = isinstance(layer, AnyLinear) and kind == "weight"
    if not isinstance(layer, Fused):
        whole = layer.vocab_size if isinstance(layer, Head | SplitEmbedding) else None
        weight = Weight(f"{owner}.{kind}", parameter, transposed)
        yield replace(weight, shard=shard_of(weight, tensor, whole))
        return
    place = owner.rpartition(".")[0]
    start = 0
    for part, outputs in layer.parts.items():
        weight = Weight(f"{place}.{part}.{kind}", parameter, transposed, (start, start + outputs))
        yield replace(weight, shard=shard_of(weight, tensor))
        start += outputs
