"""How many processes run a task, on which hosts and devices, from the command line and the config."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.config.problems import ConfigError, Problem
from trainer.config.schema import TaskConfig
from trainer.config.topology import misfit

CPU = "cpu"
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+:\d+")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Gang:
    """The processes of a run.

    Attributes:
        nproc: processes on this host.
        nnodes: hosts.
        master: ``ip:port`` on the first host where the hosts meet; needed for more than one.
        node: number of this host, from 0.
        devices: "cpu"; or the GPUs of this host's processes as CUDA_VISIBLE_DEVICES names them, one each,
            with commas in between; None: what Paddle finds.
        separate: the hosts share no folder: each keeps its own part of what is saved.
    """

    nproc: int = 1
    nnodes: int = 1
    master: str | None = None
    node: int = 0
    devices: str | None = None
    separate: bool = False

    @property
    def world(self) -> int:
        """Processes on all hosts; every host has as many as this one."""
        return self.nproc * self.nnodes

    @property
    def ranks(self) -> range:
        """The ranks of this host."""
        return range(self.node * self.nproc, (self.node + 1) * self.nproc)

    @property
    def visible(self) -> str:
        """The GPUs that `devices` names."""
        return "" if self.devices in (None, CPU) else self.devices


def add_gang_options(parser: argparse.ArgumentParser) -> None:
    """The options that `gang_of` reads."""
    group = parser.add_argument_group("several processes")
    group.add_argument("--nproc", type=int, help="processes on this host; by default what the config needs")
    group.add_argument("--devices", metavar="0,1", help="GPUs of this host, a process each; or cpu")
    group.add_argument("--nnodes", type=int, default=1, help="hosts")
    group.add_argument("--master", metavar="IP:PORT", help="where the hosts meet, on the first one")
    group.add_argument("--rank", type=int, default=0, help="number of this host, from 0")
    group.add_argument(
        "--separate-hosts",
        action="store_true",
        help="the hosts share no output_dir: each keeps its own files of what all of them save",
    )
    group.add_argument("--logs", type=Path, help="folder of a log per process; by default output_dir/logs")
    group.add_argument("--no-echo", action="store_true", help="do not repeat what the first process writes")


def gang_of(arguments: argparse.Namespace, config: TaskConfig, environment: Mapping[str, str]) -> Gang:
    """The processes that the command line asks for, or that the config needs.

    Raises:
        ConfigError: they contradict the config, the devices or each other.
    """
    devices = arguments.devices or _hidden_or_named(config, environment)
    named = [] if devices in (None, CPU) else [part.strip() for part in devices.split(",") if part.strip()]
    nproc = arguments.nproc
    if nproc is None:
        wanted = max(1, config.world_size() // max(1, arguments.nnodes))
        nproc = len(named) if arguments.devices and named else wanted
    visible, separate = ",".join(named) or devices, arguments.separate_hosts and arguments.nnodes > 1
    gang = Gang(nproc, arguments.nnodes, arguments.master, arguments.rank, visible, separate)
    problems = [problem for problem in (_misuse(gang), _shortage(gang, named)) if problem]
    if not problems and (problem := misfit(config, gang.world)):
        problems = [problem]
    if problems:
        raise ConfigError(problems)
    return gang


def _hidden_or_named(config: TaskConfig, environment: Mapping[str, str]) -> str | None:
    """What the config or the environment says of the devices."""
    visible = environment.get(_VISIBLE)
    if getattr(config, "device", None) == CPU or (visible is not None and not visible.strip()):
        return CPU
    return visible


def _misuse(gang: Gang) -> Problem | None:
    if gang.nproc < 1 or gang.nnodes < 1:
        return Problem(("--nproc",), f"got {gang.nproc} on each of {gang.nnodes} hosts, expected at least 1")
    if not 0 <= gang.node < gang.nnodes:
        expected = f"0 to {gang.nnodes - 1} for {gang.nnodes} hosts"
        return Problem(("--rank",), f"got {gang.node}, expected {expected}", "Give --nnodes too.")
    if gang.nnodes > 1 and gang.master is None:
        hint = "Give the same IP:PORT of the first host, with a free port, on all of them."
        return Problem(("--master",), f"not given, but {gang.nnodes} hosts have to meet somewhere", hint)
    if gang.nnodes > 1 and not _ADDRESS.fullmatch(gang.master or ""):
        return Problem(("--master",), f"got {gang.master}, expected IP:PORT", "For example 10.0.0.1:4000.")
    return None


def _shortage(gang: Gang, named: list[str]) -> Problem | None:
    if not named or gang.nproc <= len(named):
        return None
    msg = f"got {gang.nproc} processes, but {len(named)} GPUs are visible: {','.join(named)}"
    return Problem(("--nproc",), msg, "Every process needs a GPU of its own.")
