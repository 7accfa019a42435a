"""A training step makes no product that is not needed.

Products are counted as they are asked of Paddle; those of gradients of linear layers, which Paddle makes
itself, are seen by the memory that they would fill.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import pytest

from trainer.config import FinetuneConfig
from trainer.config.adapters import LoraSettings
from trainer.config.schema import DpoConfig
from trainer.data.batches import Batch, Collator
from trainer.data.packing import Pack, Row
from trainer.data.preference import PreferenceExample, Response
from trainer.data.preference_batches import PreferenceCollator
from trainer.data.sft import IGNORE, Example
from trainer.loop.engine import SingleEngine
from trainer.loop.objective import Objective, Supervised
from trainer.loop.preference import Pairs
from trainer.loop.step import train_step
from trainer.models.base import CausalLM
from trainer.models.directory import new_model
from trainer.models.gemma.configuration import GemmaConfig
from trainer.ops import linear_cross_entropy
from trainer.parallel.update_choice import make_updater
from trainer.peft.lora.adapter import add_lora
from trainer.peft.prefix.adapter import add_prefix

VOCABULARY, HEAD_DIM = 5000, 16
CHUNK = 8
FINETUNE = FinetuneConfig(model_name_or_path="fresh", output_dir="none", dataset_name_or_path="none")


@dataclass
class Product:
    """A matrix product: both factors and the shape of the result."""

    left: Any
    right: Any
    shape: tuple[int, ...]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[Product]:
    """Every product that is asked of Paddle from now on."""
    found: list[Product] = []
    multiply = paddle.matmul

    def recorded(x: Any, y: Any, *args: Any, **options: Any) -> Any:
        out = multiply(x, y, *args, **options)
        found.append(Product(x, y, tuple(out.shape)))
        return out

    monkeypatch.setattr(paddle, "matmul", recorded)
    monkeypatch.setattr(linear_cross_entropy, "ROWS_PER_CHUNK", CHUNK)
    return found


def model(**sizes: int) -> CausalLM:
    config = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": HEAD_DIM,
    }
    made = new_model(GemmaConfig.from_dict(config | sizes))
    made.train()
    return made


def example(length: int, learned: int) -> Example:
    ids = np.random.default_rng(length).integers(3, VOCABULARY, length + 1).astype(np.int32)
    labels = ids[1:].copy()
    labels[: length - learned] = IGNORE
    return Example(ids[:-1], labels, cut=False, lost_turns=0)


def batch(*rows: Row, length: int | None = None) -> Batch:
    return Collator(0, "right", length)(rows)


def step(trained: CausalLM, objective: Objective, *batches: Any, config: Any = FINETUNE) -> None:
    update = make_updater(trained, config)
    train_step(SingleEngine(trained), update, objective, batches, step=1, rate=1e-3)


def test_logits_exist_for_labels_alone_and_never_all_at_once(products: list[Product]) -> None:
    step(model(), Supervised(), batch(example(40, 11), example(30, 2)))
    logits = [product.shape[0] for product in products if product.shape[-1] == VOCABULARY]
    assert sorted(logits) == [11 + 2 - CHUNK, CHUNK]


def test_padding_is_in_no_product(products: list[Product]) -> None:
    rows = example(20, 5), example(9, 3)
    step(model(), Supervised(), batch(*rows))
    tight = [product.shape for product in products]
    products.clear()
    step(model(), Supervised(), batch(*rows, length=100))
    assert [product.shape for product in products] == tight


def test_documents_that_share_a_row_are_not_multiplied_with_one_another(products: list[Product]) -> None:
    lengths = 40, 30, 20
    step(model(), Supervised(), batch(Pack(tuple(example(length, 4) for length in lengths))))
    scores = [
        product.shape
        for product in products
        if product.shape[-1] in lengths and product.left.shape[-1] == HEAD_DIM
    ]
    # Forwards the scores and backwards their gradients, of two heads that are folded into rows.
    assert sorted(scores) == sorted([(1, 2 * length, length) for length in lengths] * 2)


def test_chosen_and_rejected_go_through_the_model_once_with_one_prompt(products: list[Product]) -> None:
    trained = model()
    config = DpoConfig(model_name_or_path="fresh", output_dir="none", reference_free=True)
    ids = np.arange(3, 33).astype(np.int32)
    sides = tuple(
        Response.of(int(ids[-1]), np.arange(40, 40 + size).astype(np.int32), size) for size in (6, 4)
    )
    pair = PreferenceExample(ids[:-1], sides)
    step(trained, Pairs(config, None), PreferenceCollator(pad_id=0, side="right")([pair]), config=config)
    projection = trained.parameter_names()["model.layers.0.mlp.up_proj.weight"].parameter
    rows = [product.shape[0] for product in products if product.right is projection]
    assert rows == [pair.length]
    assert pair.length < 2 * len(ids) + 6 + 4


def grown(trained: CausalLM) -> int:
    """By how many bytes tensors grow in the forward and backward passes of a few tokens, at most."""
    memory: Any = paddle.base.core
    work = batch(example(4, 2))
    engine, loss = SingleEngine(trained), Supervised()
    prepared = loss.begin(engine, [work])
    before = memory.host_memory_stat_current_value("Allocated", 0)
    memory.host_memory_stat_reset_peak_value("Allocated", 0)
    engine.train(prepared.passes, prepared.share)
    return memory.host_memory_stat_peak_value("Allocated", 0) - before


@pytest.mark.parametrize("method", ["lora", "prefix"])
def test_frozen_weights_get_no_gradient_not_even_one_that_is_thrown_away(method: str) -> None:
    sizes = {"hidden_size": 512, "intermediate_size": 1024}
    smallest = 4 * sizes["hidden_size"] * sizes["intermediate_size"]
    assert grown(model(**sizes)) > 3 * smallest
    frozen = model(**sizes)
    if method == "lora":
        add_lora(frozen, LoraSettings(rank=2, alpha=4))
    else:
        add_prefix(frozen, 4)
    frozen.train()
    assert grown(frozen) < smallest / 2
