import os
import sys
from dataclasses import replace
from pathlib import Path

from trainer.launcher.command import launcher_command, launcher_environment
from trainer.launcher.gang import CPU, Gang

SCRIPT = Path("/somewhere/rank.py")


def words(gang: Gang) -> list[str]:
    return launcher_command(gang, Path("/logs"), SCRIPT, ["finetune"])


def option(gang: Gang, name: str) -> str | None:
    given = words(gang)
    return given[given.index(name) + 1] if name in given else None


def test_the_launcher_is_paddles_and_runs_the_script_in_every_rank():
    given = words(Gang(4))
    assert given[:3] == [sys.executable, "-m", "paddle.distributed.launch"]
    assert given[-2:] == [str(SCRIPT), "finetune"]
    assert (option(Gang(4), "--nproc_per_node"), option(Gang(4), "--log_dir")) == ("4", "/logs")
    assert option(Gang(4), "--master") is None


def test_several_hosts_are_told_where_they_meet():
    gang = Gang(2, nnodes=3, master="127.0.0.1:4000", node=2)
    assert (option(gang, "--nnodes"), option(gang, "--master"), option(gang, "--rank")) == (
        "3",
        "127.0.0.1:4000",
        "2",
    )
    assert list(gang.ranks) == [4, 5]


def test_ranks_are_told_that_their_hosts_share_no_folder():
    shared = Gang(2, nnodes=2, master="127.0.0.1:4000")
    assert "REGATTA_SEPARATE_HOSTS" not in launcher_environment(shared, {})
    assert launcher_environment(replace(shared, separate=True), {})["REGATTA_SEPARATE_HOSTS"] == "1"


def test_gpus_are_named_and_nothing_else_is_visible():
    gang = Gang(2, devices="GPU-aaa,3")
    assert option(gang, "--devices") == "GPU-aaa,3"
    assert launcher_environment(gang, {"CUDA_VISIBLE_DEVICES": "0,1"})["CUDA_VISIBLE_DEVICES"] == "GPU-aaa,3"
    assert option(Gang(2, devices=CPU), "--devices") is None
    assert launcher_environment(Gang(2, devices=CPU), {})["CUDA_VISIBLE_DEVICES"] == ""


def test_only_what_computing_needs_is_passed_on():
    given = {
        "PATH": "/bin",
        "NCCL_DEBUG": "INFO",
        "FLAGS_allocator_strategy": "naive_best_fit",
        "REGATTA_EVENTS": "/events",
        "FLAGS_selected_gpus": "1",
        "HF_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "REGATTA_DATABASE_URL": "postgresql://user:secret@host/db",
        "PADDLE_TRAINER_ID": "3",
        "https_proxy": "http://user:secret@proxy",
    }
    passed = launcher_environment(Gang(2), given)
    kept = {"PATH", "NCCL_DEBUG", "FLAGS_allocator_strategy", "REGATTA_EVENTS"}
    assert (
        passed.keys() - {"PYTHONSAFEPATH", "PYTHONUNBUFFERED", "OMP_NUM_THREADS", "GLOG_minloglevel"} == kept
    )


def test_ranks_share_the_cores_unless_the_threads_are_given():
    cores = len(os.sched_getaffinity(0))
    assert launcher_environment(Gang(cores), {})["OMP_NUM_THREADS"] == "1"
    assert launcher_environment(Gang(4 * cores), {})["OMP_NUM_THREADS"] == "1"
    assert launcher_environment(Gang(4), {"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"
