import json
import os
import subprocess
import sys

import pytest

from trainer.ops.host import needs_mkl_hint

SCRIPT = """
import json, os
from trainer.ops.host import configure_cpu
configure_cpu()
names = "OMP_NUM_THREADS", "FLAGS_use_stride_kernel", "MKL_DEBUG_CPU_TYPE"
print(json.dumps({key: os.environ[key] for key in names if key in os.environ}))
"""


def settings(**given: str) -> dict[str, str]:
    ours = "OMP_NUM_THREADS", "FLAGS_use_stride_kernel", "MKL_DEBUG_CPU_TYPE"
    outside = {key: value for key, value in os.environ.items() if key not in ours}
    command = [sys.executable, "-c", SCRIPT]
    answer = subprocess.run(command, env={**outside, **given}, timeout=60, capture_output=True, check=True)
    return json.loads(answer.stdout)


def test_every_processor_is_used_and_strided_views_are_off():
    count = str(len(os.sched_getaffinity(0)))
    found = settings()
    assert (found["OMP_NUM_THREADS"], found["FLAGS_use_stride_kernel"]) == (count, "0")


def test_what_the_operator_set_wins():
    given = {"OMP_NUM_THREADS": "1", "FLAGS_use_stride_kernel": "1", "MKL_DEBUG_CPU_TYPE": "0"}
    assert settings(**given) == given


@pytest.mark.parametrize(
    ("maker", "flags", "needed"),
    [
        ("AuthenticAMD", "sse4_2 avx fma avx2", True),
        ("HygonGenuine", "fma avx2", True),
        ("AuthenticAMD", "sse4_2 avx fma avx2_other", False),
        ("GenuineIntel", "fma avx2 avx512f", False),
    ],
)
def test_mkl_is_told_of_avx2_where_it_does_not_look_itself(maker: str, flags: str, needed: bool):
    one = f"processor\t: 0\nvendor_id\t: {maker}\nmodel name\t: Any\nflags\t\t: fpu {flags}\n\n"
    assert needs_mkl_hint(one * 2) is needed
    assert not needs_mkl_hint("")


PRODUCT = """
from trainer.ops.host import import_paddle
import_paddle()
import numpy as np, paddle
a, b = (np.random.default_rng(0).standard_normal((600, 600)).astype("float32") for _ in range(2))
found = paddle.matmul(paddle.to_tensor(a), paddle.to_tensor(b)).numpy()
print(float(np.abs(found - a.astype("float64") @ b.astype("float64")).max()))
"""


def test_the_kernels_it_is_told_of_multiply_exactly():
    command = [sys.executable, "-c", PRODUCT]
    answer = subprocess.run(command, timeout=120, capture_output=True, check=True)
    assert float(answer.stdout.splitlines()[-1]) < 1e-3


KEPT = """
import sys
from trainer.ops.host import configure_cpu
configure_cpu(keep_freed_memory=sys.argv[1] == "keep")
import numpy as np

def resident():
    return int(next(x for x in open("/proc/self/status") if x.startswith("VmRSS")).split()[1]) * 1024

before = resident()
for size in range(1, 9):
    np.ones(size << 20, np.uint8)
print(resident() - before)
"""


def test_freed_memory_is_kept_or_goes_back():
    found = {}
    for word in ("keep", "give"):
        command = [sys.executable, "-c", KEPT, word]
        found[word] = int(subprocess.run(command, timeout=60, capture_output=True, check=True).stdout)
    assert found["keep"] > 6 << 20
    assert found["give"] < 2 << 20
