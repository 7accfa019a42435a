"""Checkpoints of real models in several layouts: what one process saved, any other reads and saves again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.ranks import run_ranks
from tests.trainer.parallel.layouts import Job, load, make_engine, take_step
from trainer import load_tokenizer
from trainer.checkpoint.contents import checkpoint_contents, load_trained_weights
from trainer.checkpoint.find import checkpoint_damage
from trainer.checkpoint.optimizer_state import load_optimizer
from trainer.checkpoint.ranks import Ranks
from trainer.checkpoint.saver import Saver
from trainer.checkpoint.target import whole_directory_target
from trainer.config import FinetuneConfig
from trainer.config.topology import Topology
from trainer.parallel.layout import start
from trainer.parallel.update import Updater
from trainer.parallel.update_choice import make_updater

LAYOUTS = {
    "one process": Topology(),
    "data 2": Topology(data=2),
    "tensor 2": Topology(tensor=2),
    "stage 1": Topology(sharding=2, stage=1),
    "split stage 1": Topology(sharding=2, stage=1, split_param=True),
    "stage 3": Topology(sharding=2, stage=3),
    "tensor 2, stage 3": Topology(tensor=2, sharding=2, stage=3),
}


def save(updater: Updater, path: Path, job: Job) -> None:
    saver = Saver(path.parent, Ranks.of(updater.layout), asynchronous=True)
    tokenizer = load_tokenizer(job.model)
    contents = checkpoint_contents(updater.model, updater, tokenizer, {"global_step": 1})
    saver.save(whole_directory_target(path), contents)
    saver.close()


def begin(job: Job) -> tuple[Updater, Any]:
    layout = start(job.topology, seed=0)
    model = load(job, layout)
    updater = make_updater(model, job.config, layout=layout, segment_size=job.segment_size)
    return updater, make_engine(model, updater, layout)


def train_and_save(job: Job, path: Path) -> None:
    updater, engine = begin(job)
    take_step(engine, updater, job, 0)
    save(updater, path, job)


def read_and_save(job: Job, checkpoint: Path, path: Path) -> None:
    """Read into a model that was trained differently in the meantime."""
    updater, engine = begin(job)
    take_step(engine, updater, job, 1)
    load_trained_weights(updater, checkpoint)
    load_optimizer(updater, checkpoint)
    save(updater, path, job)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def config() -> FinetuneConfig:
    return FinetuneConfig(model_name_or_path="none", dataset_name_or_path="none", output_dir="none")


@pytest.mark.parametrize(
    ("saved", "read", "changes"),
    [
        ("one process", "tensor 2, stage 3", {"options": {"fuse_attention_qkv": True}}),
        ("tensor 2, stage 3", "split stage 1", {"options": {"fuse_attention_qkv": True}}),
        ("stage 3", "tensor 2", {"options": {"fuse_attention_ffn": True}}),
        ("split stage 1", "one process", {}),
        ("stage 1", "data 2", {}),
        ("tensor 2", "stage 3", {"adapter": "lora"}),
        ("stage 3", "tensor 2", {"adapter": "projected prefix"}),
        ("data 2", "stage 1", {"adapter": "prefix"}),
    ],
)
def test_what_a_layout_saved_another_one_reads_and_saves_to_the_same_bytes(
    tmp_path: Path,
    tiny_gemma: Path,
    config: FinetuneConfig,
    saved: str,
    read: str,
    changes: dict[str, Any],
) -> None:
    job = Job(tiny_gemma, config, LAYOUTS[saved], **changes)
    first, second = tmp_path / "checkpoint-1", tmp_path / "checkpoint-2"
    run_ranks(job.topology.world, train_and_save, job, first)
    assert checkpoint_damage(first) is None
    job = replace(job, topology=LAYOUTS[read])
    run_ranks(job.topology.world, read_and_save, job, first, second)
    assert contents(second) == contents(first)
