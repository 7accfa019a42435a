"""The numbers of an estimate that come from measuring and not from the config; all of them are here.

`benchmarks/memory_estimate.py` measures those of a CPU again. Those of a GPU are assumptions, on the safe
side: how much a CUDA context and the workspaces of its libraries take differs by driver.
"""

from collections.abc import Mapping

MIB = 1 << 20

#: What a trainer process takes before it holds a model: Python, Paddle, and what they import; on a GPU, what
#: of that is on the device.
RUNTIME: Mapping[str, int] = {"cpu": 340 * MIB, "gpu": 1024 * MIB}

#: Of the memory that comes and goes in a step, so much more is taken from the system: freed blocks that are
#: too small for what is wanted next. On a CPU the trainer keeps what it has freed, for speed.
SLACK: Mapping[str, float] = {"cpu": 0.45, "gpu": 0.10}

#: Rows of logits that exist at a time (`trainer.ops.linear_cross_entropy.ROWS_PER_CHUNK`).
LOGIT_ROWS = 512
#: Queries whose attention weights are computed at a time (`trainer.ops.blockwise_attention.QUERY_BLOCK`).
QUERY_BLOCK = 128
#: Heads wider than this have no fused attention kernel (`trainer.ops.flash_attention.MAX_HEAD_DIM`).
WIDEST_FLASH_HEAD = 256
#: Stage 3 leaves parameters with fewer numbers whole (`trainer.parallel.update_choice.SEGMENT_SIZE`).
SEGMENT_SIZE = 1 << 20
