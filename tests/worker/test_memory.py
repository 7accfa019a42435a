from pathlib import Path

import pytest

from worker.memory import oom_kills


def files(tmp_path: Path, membership: str, file: str, content: str) -> int:
    (tmp_path / "cgroup").write_text(membership)
    counter = tmp_path / "fs" / file
    counter.parent.mkdir(parents=True)
    counter.write_text(content)
    return oom_kills(tmp_path / "cgroup", tmp_path / "fs")


def test_version_2_counts_in_the_events_of_the_group(tmp_path: Path):
    assert files(tmp_path, "0::/jobs/a\n", "jobs/a/memory.events", "low 0\noom 7\noom_kill 2\n") == 2


def test_version_1_counts_in_the_memory_controller(tmp_path: Path):
    membership = "5:devices:/x\n4:cpu,memory:/jobs/a\n"
    content = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    assert files(tmp_path, membership, "memory/jobs/a/memory.oom_control", content) == 3


def test_without_control_groups_there_is_no_evidence(tmp_path: Path):
    assert oom_kills(tmp_path / "nothing", tmp_path) == 0
    assert files(tmp_path, "0::/jobs/a\n", "other", "") == 0


@pytest.mark.parametrize("content", ["", "oom 1\n", "oom_kill_disable 0\n"])
def test_a_file_without_the_count_is_no_evidence(tmp_path: Path, content: str):
    assert files(tmp_path, "0::/jobs/a\n", "jobs/a/memory.events", content) == 0
