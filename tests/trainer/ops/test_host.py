import json
import os
import subprocess
import sys

SCRIPT = """
import json, os
from trainer.ops.host import configure_cpu
configure_cpu()
print(json.dumps({key: os.environ.get(key) for key in ("OMP_NUM_THREADS", "FLAGS_use_stride_kernel")}))
"""


def settings(**given: str) -> dict[str, str]:
    outside = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "FLAGS_use_stride_kernel")}
    command = [sys.executable, "-c", SCRIPT]
    answer = subprocess.run(command, env={**outside, **given}, timeout=60, capture_output=True, check=True)
    return json.loads(answer.stdout)


def test_every_processor_is_used_and_strided_views_are_off():
    count = str(len(os.sched_getaffinity(0)))
    assert settings() == {"OMP_NUM_THREADS": count, "FLAGS_use_stride_kernel": "0"}


def test_what_the_operator_set_wins():
    given = {"OMP_NUM_THREADS": "1", "FLAGS_use_stride_kernel": "1"}
    assert settings(**given) == given


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
