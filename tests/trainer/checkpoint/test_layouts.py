"""What one layout saved goes on under another one as if nothing had happened."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.ranks import run_ranks
from tests.trainer.parallel.layouts import Job, load, make_engine, take_step
from trainer import load_tokenizer
from trainer.checkpoint.contents import checkpoint_contents
from trainer.checkpoint.find import checkpoint_damage
from trainer.checkpoint.optimizer_state import load_optimizer
from trainer.checkpoint.ranks import Ranks
from trainer.checkpoint.saver import Saver
from trainer.checkpoint.target import whole_directory_target
from trainer.config import FinetuneConfig
from trainer.config.topology import Topology
from trainer.parallel.layout import start
from trainer.parallel.update_choice import make_updater

MakeConfig = Callable[..., FinetuneConfig]

STEPS = 3
LAYOUTS = {
    "one": Topology(),
    "data 2": Topology(data=2),
    "tensor 2": Topology(tensor=2),
    "stage 1": Topology(sharding=2, stage=1),
    "split stage 1": Topology(sharding=2, stage=1, split_param=True),
    "stage 2": Topology(sharding=2, stage=2),
    "stage 3": Topology(sharding=2, stage=3),
    "tensor 2, stage 3": Topology(tensor=2, sharding=2, stage=3),
}


def save_under(job: Job, output: Path) -> list[float]:
    """Train from the beginning and save; returns the losses."""
    layout = start(job.topology, seed=0)
    model = load(job, layout)
    updater = make_updater(model, job.config, layout=layout, segment_size=job.segment_size)
    engine = make_engine(model, updater, layout)
    losses = [take_step(engine, updater, job, step)[0] for step in range(STEPS)]
    save(output, layout, model, updater, load_tokenizer(job.model))
    return losses


def save(output: Path, layout: Any, model: Any, updater: Any, tokenizer: Any) -> None:
    saver = Saver(output, Ranks.of(layout), asynchronous=True)
    contents = checkpoint_contents(model, updater, tokenizer, {"global_step": STEPS})
    saver.save(whole_directory_target(output / f"checkpoint-{STEPS}"), contents)
    saver.close()


def resume_under(job: Job, checkpoint: Path, output: Path) -> list[float]:
    """Go on from a checkpoint; returns the losses. What was read is also saved again."""
    layout = start(job.topology, seed=0)
    model = load(replace(job, model=checkpoint), layout)
    updater = make_updater(model, job.config, layout=layout, segment_size=job.segment_size)
    load_optimizer(updater, checkpoint)
    save(output, layout, model, updater, load_tokenizer(checkpoint))
    engine = make_engine(model, updater, layout)
    return [take_step(engine, updater, job, step)[0] for step in range(STEPS, 2 * STEPS)]


@pytest.fixture(scope="module")
def config() -> FinetuneConfig:
    return FinetuneConfig(
        model_name_or_path="none",
        dataset_name_or_path="none",
        output_dir="none",
        weight_decay=0.1,
        max_grad_norm=1.0,
    )


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_it(tmp_path: Path, tiny_gemma: Path, config: FinetuneConfig, name: str, fused: bool) -> None:
    options = {"fuse_attention_qkv": fused}
    job = Job(tiny_gemma, config, LAYOUTS[name], options=options)
    losses = run_ranks(job.topology.world, save_under, job, tmp_path, timeout_s=60)
    checkpoint = tmp_path / f"checkpoint-{STEPS}"
    assert checkpoint_damage(checkpoint) is None
    rest = run_ranks(job.topology.world, resume_under, job, checkpoint, tmp_path / "again", timeout_s=60)
    print(losses[0], rest[0])
    for file in checkpoint.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / checkpoint.name / file.name).read_bytes(), file
