"""What Paddle Fleet needs and lacks on CPU, so that the code of GPUs runs and is tested there.

Fleet is written for NCCL. Layers, schedules, optimizers and sharding stay Paddle's own; `install` adds what
gloo and the CPU kernels have not: groups that do not disturb each other, missing collectives, messages
between any two ranks, four kernels of tensor parallelism, and the acceptance of the device name "cpu".
"""

import paddle

from trainer.parallel.cpu.collectives import add_collectives
from trainer.parallel.cpu.devices import accept_cpu
from trainer.parallel.cpu.groups import isolate_groups, wait_for_store
from trainer.parallel.cpu.kernels import add_kernels
from trainer.parallel.cpu.messages import add_messages

_state = {"installed": False}


def install() -> bool:
    """Fill the gaps of this process, once, before `fleet.init`; returns whether it computes on CPU.

    Does nothing when the current device is not the CPU.
    """
    if paddle.device.get_device() != "cpu":
        return False
    if not _state["installed"]:
        wait_for_store()
        isolate_groups()
        add_collectives()
        add_messages()
        add_kernels()
        accept_cpu()
        _state["installed"] = True
    return True
