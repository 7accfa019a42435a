"""Whether a job fits into the memory of a device, and what would help if it does not."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trainer.config.estimate.estimate import Estimate, architecture_of, memory_of
from trainer.config.estimate.memory import Memory, Parts
from trainer.config.estimate.parameters import trains_adapter
from trainer.config.problems import Problem
from trainer.config.schema import RunConfig, SftConfig, TaskConfig
from trainer.config.topology import Topology

GIB = 1 << 30
FEWEST_SHOWN = 0.01
"""Parts that are a smaller share of the whole are not named."""
WORDS = {"optimizer_state": "optimizer state", "master_weights": "master weights"}
WORDS |= {"reference_model": "reference model", "loss": "logits and loss", "allocator": "allocator's slack"}
MOST_DEGREE = 8


@dataclass(frozen=True)
class Way:
    """A change that makes a job smaller.

    Attributes:
        words: what to do.
        bytes: what it then takes.
    """

    words: str
    bytes: int


def too_large(
    estimate: Estimate, config: TaskConfig, topology: Topology, device: str, largest: int
) -> Problem | None:
    """The problem of a job that needs more than the largest device has, with the arithmetic; None: it fits.

    Args:
        largest: bytes of the largest device that is known.
    """
    memory = estimate.memory
    if memory is None or memory.total <= largest:
        return None
    msg = f"needs {gib(memory.total)} on each {device} device = {arithmetic(memory.parts)}"
    msg += f" (most at {memory.moment}), and the largest that is known has {gib(largest)}"
    found = sorted(ways(config, topology, device, estimate), key=lambda way: way.bytes)
    enough = [way for way in found if way.bytes <= largest]
    if enough:
        chosen = [f"{way.words} ({gib(way.bytes)})" for way in enough[:3]]
        return Problem((), msg, f"It would fit with {', or '.join(chosen)}.")
    smaller = [f"{way.words} ({gib(way.bytes)})" for way in found[:3] if way.bytes < memory.total]
    if not smaller:
        return Problem((), msg, "Use a larger device or a smaller model.")
    return Problem((), msg, f"Use a larger device; smaller, but not enough: {', '.join(smaller)}.")


def arithmetic(parts: Parts) -> str:
    """The parts that matter, largest first, as a sum."""
    sizes = sorted(vars(parts).items(), key=lambda part: -part[1])
    shown = [(name, size) for name, size in sizes if size >= FEWEST_SHOWN * parts.total]
    rest = parts.total - sum(size for _, size in shown)
    words = [f"{WORDS.get(name, name)} {gib(size)}" for name, size in shown]
    return " + ".join([*words, f"others {gib(rest)}"] if rest > 0 else words)


def ways(config: TaskConfig, topology: Topology, device: str, estimate: Estimate) -> Iterator[Way]:
    """Changes of the config that make it smaller, one at a time, then those that do not mind each other."""
    if not isinstance(config, RunConfig) or not config.do_train:
        return
    changes = list(_changes(config))
    together: dict[str, Any] = {}
    for words, update in changes:
        together |= update
        if found := _memory(config, update, topology, device, estimate):
            yield Way(words, found.total)
    for words, split in _splits(topology):
        if found := _memory(config, {}, split, device, estimate):
            yield Way(words, found.total)
    if len(changes) > 1 and (found := _memory(config, together, topology, device, estimate)):
        yield Way(" and ".join(words for words, _ in changes), found.total)


def _changes(config: RunConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    if not trains_adapter(config):
        yield "lora true", {"lora": True}
    if not config.recompute or config.recompute_granularity != "full":
        yield "recompute true", {"recompute": True, "recompute_granularity": "full"}
    if config.per_device_train_batch_size > 1:
        yield "per_device_train_batch_size 1", {"per_device_train_batch_size": 1}
    if isinstance(config, SftConfig) and config.max_length > 2048:
        yield "max_length 2048", {"max_length": 2048}


def _splits(topology: Topology) -> Iterator[tuple[str, Topology]]:
    if topology.tensor < MOST_DEGREE:
        degree = MOST_DEGREE if topology.tensor == 1 else 2 * topology.tensor
        yield f"tensor_parallel_degree {degree}", replace(topology, tensor=degree)
    if topology.stage < 3 and topology.tensor == topology.pipeline == 1:
        degree = max(topology.sharding * topology.data, MOST_DEGREE)
        split = replace(topology, stage=3, sharding=degree, data=1, split_param=False)
        yield f"sharding stage3 over {degree} devices", split


def _memory(
    config: RunConfig, update: dict[str, Any], topology: Topology, device: str, estimate: Estimate
) -> Memory | None:
    """Of the config with some arguments changed. Changed lengths and batches are taken as full."""
    changed = config.model_copy(update=update)
    model = architecture_of(changed)
    if model is None or model.heads % topology.tensor or model.inner % topology.tensor:
        return None
    counted = None if {"per_device_train_batch_size", "max_length"} & update.keys() else estimate.data
    return memory_of(model, changed, topology, device, counted)


def gib(size: int) -> str:
    """Bytes for people: 14.2 GiB, or 340 MiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / (1 << 20):.0f} MiB"
