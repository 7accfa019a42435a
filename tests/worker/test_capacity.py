from pathlib import Path

import psutil

from worker.capacity import host_memory

GIB = 1 << 30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def membership(tmp_path: Path, line: str) -> Path:
    path = tmp_path / "cgroup"
    path.write_text(line + "\n")
    return path


def test_a_host_without_control_groups_lends_all_of_its_memory(tmp_path: Path) -> None:
    assert host_memory(tmp_path / "none", tmp_path) == psutil.virtual_memory().total


def test_the_limit_of_the_group_counts(tmp_path: Path) -> None:
    write(tmp_path / "root" / "job" / "memory.max", f"{GIB // 4}\n")
    assert host_memory(membership(tmp_path, "0::/job"), tmp_path / "root") == GIB // 4


def test_the_limit_of_a_group_above_counts(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root / "pod" / "memory.max", str(GIB // 8))
    write(root / "pod" / "job" / "memory.max", "max")
    assert host_memory(membership(tmp_path, "0::/pod/job"), root) == GIB // 8


def test_a_group_without_a_limit_lends_all(tmp_path: Path) -> None:
    write(tmp_path / "root" / "job" / "memory.max", "max")
    found = host_memory(membership(tmp_path, "0::/job"), tmp_path / "root")
    assert found == psutil.virtual_memory().total


def test_control_groups_of_the_first_version_count_too(tmp_path: Path) -> None:
    write(tmp_path / "root" / "memory" / "job" / "memory.limit_in_bytes", str(GIB // 2))
    found = host_memory(membership(tmp_path, "5:cpu,memory:/job"), tmp_path / "root")
    assert found == GIB // 2
