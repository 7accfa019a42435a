"""The models that `make_models.py` makes."""

from dataclasses import dataclass, field


@dataclass
class Case:
    """A configuration and the number of real tokens of each row; padding goes to `side`.

    `alibi`: linear biases in place of the rotation. `bare_names`: tensors are stored without the prefix.
    """

    name: str
    sizes: dict
    lengths: tuple[int, ...]
    side: str = "right"
    positions: bool = False
    dtype: str = "float32"
    save: dict = field(default_factory=dict)
    alibi: bool = False
    bare_names: bool = False


def _gemma(vocab: int, hidden: int, heads: int, kv_heads: int, head_dim: int, **more: object) -> dict:
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        **more,
    }


def _bloom(vocab: int, hidden: int, heads: int, **more: object) -> dict:
    return {"vocab_size": vocab, "hidden_size": hidden, "n_head": heads, **more}


GEMMA = [
    Case("one_kv_head", _gemma(101, 48, 4, 1, 16), (12, 12, 12)),
    Case("untied_right_padded", _gemma(67, 40, 4, 2, 8, tie_word_embeddings=False), (9, 14, 14, 3)),
    Case("all_kv_heads_left_padded", _gemma(83, 32, 3, 3, 24), (5, 11, 8), side="left", positions=True),
    Case("long_with_biases", _gemma(59, 32, 6, 2, 10, attention_bias=True, rope_theta=500.0), (300, 129)),
    Case(
        "sharded_bfloat16",
        _gemma(61, 24, 2, 1, 20),
        (10, 10),
        dtype="bfloat16",
        save={"max_shard_size": "12KB"},
    ),
    Case("alibi_with_biases", _gemma(53, 32, 6, 2, 6, attention_bias=True), (6, 17, 11), alibi=True),
    Case("untied_one_head", _gemma(37, 16, 1, 1, 34, tie_word_embeddings=False), (7, 4), side="left"),
]

BLOOM = [
    Case("three_heads", _bloom(61, 24, 3), (12, 12, 12)),
    Case("five_heads_left_padded", _bloom(67, 20, 5), (5, 11, 8), side="left", positions=True),
    Case("six_heads_untied", _bloom(59, 24, 6, tie_word_embeddings=False), (9, 14, 14, 3)),
    Case("twelve_heads_long", _bloom(43, 24, 12), (300, 129)),
    Case(
        "residual_after_norm",
        _bloom(53, 32, 8, apply_residual_connection_post_layernorm=True),
        (7, 13),
        side="left",
    ),
    Case("bare_names_float16", _bloom(71, 18, 9), (10, 10), dtype="float16", bare_names=True),
    Case("one_head", _bloom(47, 16, 1), (6, 9), side="left"),
]
