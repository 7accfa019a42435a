"""What several processes saved in several files, transformers loads (needs the oracle extra)."""

import json
import subprocess
from pathlib import Path

import numpy as np
import paddle
import pytest

from tests.ranks import run_ranks
from tests.trainer.checkpoint.test_layouts import save
from tests.trainer.models.test_transformers_loads import PYTHON, SCRIPT, TEXT, has_transformers
from tests.trainer.parallel.layouts import Job, load
from trainer import load_model
from trainer.checkpoint import contents
from trainer.config import FinetuneConfig
from trainer.config.topology import Topology
from trainer.parallel.layout import start
from trainer.parallel.update_choice import make_updater

SMALL = 60_000


def save_in_small_files(job: Job, path: Path) -> None:
    contents.MAX_SHARD_BYTES = SMALL
    layout = start(job.topology, seed=0)
    save(make_updater(load(job, layout), job.config, layout=layout), path, job)


@pytest.mark.oracle
def test_transformers_loads_a_checkpoint_of_two_processes_in_several_files(
    tmp_path: Path, tiny_gemma: Path
) -> None:
    if not has_transformers():
        pytest.skip("transformers is not installed; name an interpreter in REGATTA_ORACLE_PYTHON")
    config = FinetuneConfig(model_name_or_path="none", dataset_name_or_path="none", output_dir="none")
    checkpoint = tmp_path / "checkpoint-1"
    run_ranks(2, save_in_small_files, Job(tiny_gemma, config, Topology(tensor=2)), checkpoint)
    assert len(list(checkpoint.glob("model-*-of-*.safetensors"))) > 1
    command = [PYTHON, "-c", SCRIPT, str(checkpoint), TEXT]
    answer = subprocess.run(command, timeout=170, capture_output=True, check=True, text=True)
    theirs = json.loads(answer.stdout.splitlines()[-1])
    assert theirs["strangers"] == []
    ours = load_model(checkpoint)(paddle.to_tensor([theirs["ids"]]))[0].numpy()
    assert np.abs(ours - theirs["logits"]).max() <= 1e-4 * np.abs(ours).max()
