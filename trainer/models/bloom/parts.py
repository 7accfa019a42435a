"""What BLOOM's parameters are for, and how they may be cut.

The fused projection holds query, key and value head by head, so pieces of whole heads lie one after another.
"""

from trainer.models.parts import Role, Split, SplitRules

ROLES = {
    "query_key_value": Role.QUERY_KEY_VALUE,
    "dense": Role.ATTENTION_OUTPUT,
    "dense_h_to_4h": Role.UP,
    "dense_4h_to_h": Role.DOWN,
}

_VOCABULARY = Split(0, "vocab_size", filled_when_uneven=True)
_HEADS = Split(0, "num_attention_heads")
_INNER = Split(0, "hidden_size")

SPLITS: SplitRules = {
    "transformer.word_embeddings.weight": _VOCABULARY,
    "transformer.word_embeddings_layernorm.weight": None,
    "transformer.word_embeddings_layernorm.bias": None,
    "transformer.h.*.input_layernorm.weight": None,
    "transformer.h.*.input_layernorm.bias": None,
    "transformer.h.*.self_attention.query_key_value.weight": _HEADS,
    "transformer.h.*.self_attention.query_key_value.bias": _HEADS,
    "transformer.h.*.self_attention.dense.weight": Split(1, "num_attention_heads"),
    "transformer.h.*.self_attention.dense.bias": None,
    "transformer.h.*.post_attention_layernorm.weight": None,
    "transformer.h.*.post_attention_layernorm.bias": None,
    "transformer.h.*.mlp.dense_h_to_4h.weight": _INNER,
    "transformer.h.*.mlp.dense_h_to_4h.bias": _INNER,
    "transformer.h.*.mlp.dense_4h_to_h.weight": Split(1, "hidden_size"),
    "transformer.h.*.mlp.dense_4h_to_h.bias": None,
    "transformer.ln_f.weight": None,
    "transformer.ln_f.bias": None,
    "lm_head.weight": _VOCABULARY,
}
