"""Collectives that Fleet calls and gloo groups lack."""

from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor
from paddle.base import core

_ON_CALC_STREAM = "_on_calc_stream"


class Done:
    """A communication that is over, in the place of one that could be waited for."""

    def wait(self, *_: Any) -> bool:
        """Return at once."""
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        """Always."""
        return True


def write(target: Tensor, source: Tensor) -> None:
    """Copy `source` into the memory of `target`, which may be a part of a larger buffer."""
    with paddle.no_grad():
        paddle.assign(source.reshape(target.shape), target)


def add_collectives() -> None:
    """Add the missing methods to gloo groups."""
    group: Any = core.ProcessGroupGloo
    group.reduce_scatter_tensor = _reduce_scatter_tensor
    group.all_gather_partial = _all_gather_partial
    for name in dir(core.ProcessGroup):
        if name.endswith(_ON_CALC_STREAM):
            setattr(group, name, _completed(name.removesuffix(_ON_CALC_STREAM)))


def _completed(name: str) -> Callable[..., Any]:
    """The method `name`, waited for: a CPU computes in one stream.

    The method is looked up when it is called, because others of this package replace some.
    """

    def call(group: Any, *args: Any) -> Any:
        task = getattr(group, name)(*args, True)
        task.wait()
        return task

    return call


def _reduce_scatter_tensor(
    group: Any, output: Tensor, whole: Tensor, operation: Any = core.ReduceOp.SUM, sync_op: bool = True
) -> Done:
    """Reduce `whole` over the group; `output` gets this rank's part of its first axis."""
    total = whole.detach().clone()
    group.all_reduce(total, operation, True).wait()
    write(output, total.reshape([group.size(), -1])[group.rank()])
    return Done()


def _all_gather_partial(
    group: Any, output: Tensor, whole: Tensor, parts: int, index: int, sync_op: bool = True
) -> Done:
    """Gather part number `index` of the `parts` parts of `whole` from every rank of the group."""
    part = whole.detach().reshape([parts, -1])[index].clone()
    gathered = paddle.empty([output.size], dtype=output.dtype)
    group.all_gather_into_tensor(gathered, part, True).wait()
    write(output, gathered)
    return Done()
