"""How Paddle's launcher is called: its command line, and the environment that the ranks inherit from it."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer.launcher.gang import CPU, Gang

SEPARATE_HOSTS = "REGATTA_SEPARATE_HOSTS"
"""Variable of ranks whose hosts share no folder."""

_KEPT = re.compile(
    "PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TZ|LANG|LANGUAGE|LC_.*|LD_.*|PYTHON.*|VIRTUAL_ENV|XDG_CACHE_HOME|"
    "OMP_.*|GOMP_.*|KMP_.*|MKL_.*|OPENBLAS_.*|MALLOC_.*|CUDA_.*|NVIDIA_.*|NCCL_.*|GLOO_.*|UCX_.*|FI_.*|"
    "FLAGS_(?!selected_).*|GLOG_.*|PORT_RANGE|REGATTA_(EVENTS|DEADLINE_FILE)"
)


def launcher_command(gang: Gang, log_dir: Path, script: Path, arguments: Sequence[str]) -> list[str]:
    """The words that start Paddle's launcher, which runs `script` with `arguments` in every rank."""
    words = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(gang.nproc)]
    words += ["--log_dir", str(log_dir), "--enable_gpu_log", "False"]
    words += ["--max_restart", "0"]
    if gang.nnodes > 1 and gang.master is not None:
        words += ["--nnodes", str(gang.nnodes), "--master", gang.master, "--rank", str(gang.node)]
        words += ["--host", _own_address(gang.master)]
    else:
        words += ["--host", "127.0.0.1"]  # the host's own name may not lead to it
    if gang.visible:
        words += ["--devices", gang.visible]
    return [*words, str(script), *arguments]


def launcher_environment(gang: Gang, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the launcher and the ranks get.

    The launcher writes all that it gets into files, so nothing is passed on but what is known to be needed
    for computing: no tokens, no passwords, no ``PADDLE_*`` of a launcher further up.
    """
    kept = {name: value for name, value in environment.items() if _KEPT.fullmatch(name)}
    # A folder of scripts that a rank's script lies in must not pass for the place of its modules.
    kept |= {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    kept.setdefault("GLOG_minloglevel", "1")  # Paddle tells of every connection
    if gang.separate:
        kept[SEPARATE_HOSTS] = "1"
    kept.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // gang.nproc)))
    if gang.devices == CPU:
        # An empty list of GPUs alone is taken for a list of one GPU without a name. Hearing that all devices
        # of this other kind are allowed, the launcher looks itself, and finds none: then it chooses gloo.
        kept |= {"CUDA_VISIBLE_DEVICES": "", "XPULINK_VISIBLE_DEVICES": "all"}
    elif gang.visible:
        kept["CUDA_VISIBLE_DEVICES"] = gang.visible
    return kept


def _own_address(master: str) -> str:
    """The address by which the other hosts know this one: that from which it would speak to the first."""
    host, _, port = master.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # connecting it sends nothing
        probe.connect((host, int(port)))
        return probe.getsockname()[0]
