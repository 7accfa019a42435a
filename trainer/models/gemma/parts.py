"""What Gemma's parameters are for, and how they may be cut."""

from trainer.models.parts import Role, Split, SplitRules

ROLES = {
    "q_proj": Role.QUERY,
    "k_proj": Role.KEY,
    "v_proj": Role.VALUE,
    "qkv_proj": Role.QUERY_KEY_VALUE,
    "o_proj": Role.ATTENTION_OUTPUT,
    "gate_proj": Role.GATE,
    "up_proj": Role.UP,
    "gate_up_fused_proj": Role.GATE_UP,
    "down_proj": Role.DOWN,
}

_VOCABULARY = Split(0, "vocab_size", filled_when_uneven=True)
_QUERIES = Split(0, "num_attention_heads")
_KEYS = Split(0, "num_key_value_heads", whole_when_uneven=True)

SPLITS: SplitRules = {
    "model.embed_tokens.weight": _VOCABULARY,
    "model.layers.*.self_attn.q_proj.weight": _QUERIES,
    "model.layers.*.self_attn.q_proj.bias": _QUERIES,
    "model.layers.*.self_attn.k_proj.weight": _KEYS,
    "model.layers.*.self_attn.k_proj.bias": _KEYS,
    "model.layers.*.self_attn.v_proj.weight": _KEYS,
    "model.layers.*.self_attn.v_proj.bias": _KEYS,
    "model.layers.*.self_attn.o_proj.weight": Split(1, "num_attention_heads"),
    "model.layers.*.self_attn.o_proj.bias": None,
    "model.layers.*.mlp.gate_proj.weight": Split(0, "intermediate_size"),
    "model.layers.*.mlp.up_proj.weight": Split(0, "intermediate_size"),
    "model.layers.*.mlp.down_proj.weight": Split(1, "intermediate_size"),
    "model.layers.*.input_layernorm.weight": None,
    "model.layers.*.post_attention_layernorm.weight": None,
    "model.norm.weight": None,
    "lm_head.weight": _VOCABULARY,
}
