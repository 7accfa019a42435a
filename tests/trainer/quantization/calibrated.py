"""Small models with weights that matter, and batches to calibrate them with."""

from typing import Any

import numpy as np
import paddle

from trainer.models import CausalLM, family, new_model
from trainer.models.passes import LossPass, Pass
from trainer.ops.packing import Packing

VOCABULARY = 512
_SIZES: dict[str, dict[str, Any]] = {
    "gemma": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    },
    "bloom": {"hidden_size": 64, "num_attention_heads": 4},
}
FAMILIES = tuple(_SIZES)


def small(name: str, layers: int = 2, **more: Any) -> CausalLM:
    """A model of a family whose norms and biases are not what fresh ones are, in float32."""
    sizes = {"vocab_size": VOCABULARY, "num_hidden_layers": layers, **_SIZES[name], **more}
    model = new_model(family(name).config_class.from_dict(sizes))
    draws = np.random.default_rng(1)
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            noise = draws.normal(0, 0.2, parameter.shape).astype(np.float32)
            parameter.set_value(parameter + paddle.to_tensor(noise))
    return model


def batches(count: int = 3, rows: int = 2, length: int = 24) -> list[Pass]:
    """Random tokens; the second row of each batch is padded on the left and holds two documents."""
    draws = np.random.default_rng(2)
    made = []
    for _ in range(count):
        ids = paddle.to_tensor(draws.integers(4, VOCABULARY, (rows, length)))
        documents = np.ones((rows, length), np.int64)
        documents[1, :5], documents[1, 14:] = 0, 2
        packing = Packing.of(ids, None, paddle.to_tensor(documents))
        packed = packing.pack(ids)
        made.append(LossPass(packed, packing, packed))
    return made


def states_of(model: CausalLM, batch: Pass) -> np.ndarray:
    """Logits `[tokens, vocabulary]` of a batch."""
    with paddle.no_grad():
        model.eval()
        return model.lm_head(model.final_states(batch.ids, batch.packing), None, "logits").numpy()
