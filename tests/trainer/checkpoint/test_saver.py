import json
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.ranks import RankError, run_ranks
from tests.trainer.checkpoint.processes import SHAPE, checkpoint, matrix, ranks_through
from trainer.checkpoint.directory import Part, damage, remove_leftovers
from trainer.checkpoint.find import find_checkpoint
from trainer.checkpoint.marks import SaveError
from trainer.checkpoint.pieces import Contents
from trainer.checkpoint.ranks import Ranks, check_shared_folder
from trainer.checkpoint.saver import Saver
from trainer.checkpoint.target import files_target, whole_directory_target
from trainer.checkpoint.tensor_files import TensorReader
from trainer.config.problems import ConfigError


def saved(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def save_alone(output: Path, step: int = 0) -> Path:
    path = output / f"checkpoint-{step}"
    Saver(output).save(whole_directory_target(path), checkpoint(0, 1, step))
    return path


def this_rank() -> int:
    return int(os.environ["PADDLE_TRAINER_ID"])


def exchange(tmp_path: Path) -> Path:
    folder = tmp_path / "exchange"
    folder.mkdir(exist_ok=True)
    return folder


def save_as_one_of(size: int, shared: Path, output: Path, asynchronous: bool) -> None:
    rank = this_rank()
    saver = Saver(output, ranks_through(shared, rank, size), asynchronous=asynchronous)
    for step in (1, 2):
        saver.save(whole_directory_target(output / f"checkpoint-{step}"), checkpoint(rank, size, step))
    saver.close()


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_any_number_of_processes_writes_the_bytes_of_one(
    tmp_path: Path, size: int, asynchronous: bool
) -> None:
    output = tmp_path / "output"
    run_ranks(size, save_as_one_of, size, exchange(tmp_path), output, asynchronous, timeout_s=60)
    for step in (1, 2):
        assert saved(output / f"checkpoint-{step}") == saved(save_alone(tmp_path / "alone", step))
        assert damage(output / f"checkpoint-{step}") is None
    assert names(output) == ["checkpoint-1", "checkpoint-2"]


def save_apart(size: int, hosts: int, shared: Path, outputs: Path, asynchronous: bool) -> None:
    rank = this_rank()
    ranks = ranks_through(shared, rank, size, hosts)
    output = outputs / str(ranks.host)
    saver = Saver(output, ranks, asynchronous=asynchronous)
    for step in (1, 2):
        target = whole_directory_target(output / f"checkpoint-{step}", Part(ranks.host, hosts))
        saver.save(target, checkpoint(rank, size, step))
    saver.save(files_target(output), checkpoint(rank, size, 3), in_background=False)
    saver.close()
    saver.bring_together(output / "checkpoint-2")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hosts_that_share_no_folder_write_the_same_files_between_them(
    tmp_path: Path, asynchronous: bool
) -> None:
    outputs, hosts = tmp_path / "outputs", (tmp_path / "outputs" / "0", tmp_path / "outputs" / "1")
    run_ranks(4, save_apart, 4, 2, exchange(tmp_path), outputs, asynchronous, timeout_s=60)
    parts = [saved(host / "checkpoint-1") for host in hosts]
    manifests = [parts[0].pop("manifest.json"), parts[1].pop("manifest-1.json")]
    assert all(parts)
    assert not parts[0].keys() & parts[1].keys()
    alone = saved(save_alone(tmp_path / "alone", 1))
    alone.pop("manifest.json")
    assert parts[0] | parts[1] == alone
    assert [set(json.loads(manifest)["files"]) for manifest in manifests] == [set(part) for part in parts]
    assert damage(hosts[0] / "checkpoint-1") == "it has no manifest-1.json"
    assert damage(hosts[1] / "checkpoint-1") == "it has no manifest.json"
    for host in hosts:
        assert damage(host / "checkpoint-2") is None
        assert names(host)[:2] == ["checkpoint-1", "checkpoint-2"]
    finals = [{p.name for p in host.iterdir() if p.is_file()} for host in hosts]
    assert finals[0] | finals[1] == alone.keys()


def test_what_several_processes_saved_is_read_in_other_parts(tmp_path: Path) -> None:
    run_ranks(4, save_as_one_of, 4, exchange(tmp_path), tmp_path / "output", False, timeout_s=60)
    for stem, step in (("model", 2), ("optimizer", 3)):
        reader = TensorReader(tmp_path / "output" / "checkpoint-2", stem)
        for number in range(4):
            middle = reader.read(f"layers.{number}.weight", ((8, 40), (5, SHAPE[1])))
            np.testing.assert_array_equal(middle, matrix(number, step)[8:40, 5:])


def save_files_as_one_of(size: int, shared: Path, output: Path) -> None:
    rank = this_rank()
    saver = Saver(output, ranks_through(shared, rank, size))
    saver.save(files_target(output), checkpoint(rank, size))
    saver.close()


@pytest.mark.parametrize("size", [1, 2])
def test_files_of_a_folder_take_the_place_of_earlier_weights_and_leave_others_alone(
    tmp_path: Path, size: int
) -> None:
    output = tmp_path / "output"
    output.mkdir()
    for name in ("model.safetensors", "model-00001-of-00009.safetensors", "notes.txt"):
        (output / name).write_bytes(b"of before")
    run_ranks(size, save_files_as_one_of, size, exchange(tmp_path), output, timeout_s=60)
    expected = saved(save_alone(tmp_path / "alone"))
    del expected["manifest.json"]
    assert saved(output) == expected | {"notes.txt": b"of before"}


@contextmanager
def held_back(contents: Contents) -> Iterator[Callable[[], None]]:
    """Lets a save stop before its end; the function that is given lets it go on."""
    gate = threading.Event()

    def wait(_: Path) -> None:
        gate.wait(timeout=30)

    contents.others.append(wait)
    try:
        yield gate.set
    finally:
        gate.set()


def test_an_asynchronous_save_is_told_at_a_later_step_when_it_is_complete(tmp_path: Path) -> None:
    saver = Saver(tmp_path, asynchronous=True)
    told: list[str] = []
    contents = checkpoint(0, 1)
    path = tmp_path / "checkpoint-1"
    with held_back(contents) as let_go:
        saver.save(whole_directory_target(path), contents, lambda: told.append("complete"))
        saver.poll()
        assert (told, path.exists()) == ([], False)
        let_go()
        saver.wait()
    assert told == ["complete"]
    assert damage(path) is None
    saver.poll()
    assert told == ["complete"]


def test_there_are_never_two_saves_at_once(tmp_path: Path) -> None:
    saver = Saver(tmp_path, asynchronous=True)
    order: list[str] = []
    for step in (1, 2):
        contents = checkpoint(0, 1, step)
        contents.others.append(lambda directory: order.append(f"{directory.name} begins"))
        saver.save(
            whole_directory_target(tmp_path / f"checkpoint-{step}"), contents, lambda: order.append("told")
        )
    saver.close()
    assert order == [".checkpoint-1.partial begins", "told", ".checkpoint-2.partial begins", "told"]


def test_what_is_trained_during_an_asynchronous_save_is_not_in_it(tmp_path: Path) -> None:
    saver = Saver(tmp_path, asynchronous=True)
    contents = checkpoint(0, 1, step=3)
    with held_back(contents):
        saver.save(whole_directory_target(tmp_path / "checkpoint-3"), contents)
        for group in contents.tensors:
            for piece in group.pieces:
                piece.values()[...] = -1
    saver.close()
    found = saved(tmp_path / "checkpoint-3")
    assert found == saved(save_alone(tmp_path / "alone", step=3))


def test_a_save_that_has_to_be_complete_waits_for_the_one_before_it(tmp_path: Path) -> None:
    saver = Saver(tmp_path, asynchronous=True)
    saver.save(whole_directory_target(tmp_path / "checkpoint-1"), checkpoint(0, 1))
    saver.save(whole_directory_target(tmp_path / "checkpoint-2"), checkpoint(0, 1), in_background=False)
    assert names(tmp_path) == ["checkpoint-1", "checkpoint-2"]


def save_and_wait(saver: Saver, path: Path) -> None:
    saver.save(whole_directory_target(path), checkpoint(0, 1))
    saver.wait()


@contextmanager
def small_disk() -> Iterator[None]:
    """No file of this process may be larger than half a matrix, as if there were no more room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SHAPE[0] * SHAPE[1] * 2, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, asynchronous: bool) -> None:
    before = save_alone(tmp_path, step=1)
    saver = Saver(tmp_path, asynchronous=asynchronous)
    with small_disk(), pytest.raises(OSError, match="File too large"):
        save_and_wait(saver, tmp_path / "checkpoint-2")
    assert names(tmp_path) == ["checkpoint-1"]
    found = find_checkpoint(tmp_path)
    assert found is not None
    assert found.path == before


def poll_for_ten_seconds(saver: Saver) -> None:
    for _ in range(1000):
        saver.poll()
        time.sleep(0.01)


def test_an_error_of_the_thread_is_raised_by_the_next_step(tmp_path: Path) -> None:
    saver = Saver(tmp_path, asynchronous=True)
    contents = checkpoint(0, 1)

    def fail(_: Path) -> None:
        raise ZeroDivisionError

    contents.others.append(fail)
    saver.save(whole_directory_target(tmp_path / "checkpoint-1"), contents)
    with pytest.raises(ZeroDivisionError):
        poll_for_ten_seconds(saver)
    saver.close()
    assert names(tmp_path) == []


def fail_in_one(failing: int, size: int, shared: Path, output: Path) -> str:
    """Save as one of several processes, of which one finds no room for its part."""
    rank = this_rank()
    saver = Saver(output, ranks_through(shared, rank, size), asynchronous=True)
    contents = checkpoint(rank, size, 2)
    if rank == failing:

        def no_room(*_: object) -> None:
            raise OSError(28, os.strerror(28))

        contents.others.append(no_room)
        os.pwrite = no_room
    saver.save(whole_directory_target(output / "checkpoint-2"), contents)
    try:
        saver.wait()
    except (OSError, SaveError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@pytest.mark.parametrize("failing", [0, 1])
def test_all_processes_learn_that_one_failed_and_why(tmp_path: Path, failing: int) -> None:
    save_alone(tmp_path / "output", step=1)
    told = run_ranks(2, fail_in_one, failing, 2, exchange(tmp_path), tmp_path / "output", timeout_s=60)
    assert told.pop(failing) == "OSError: [Errno 28] No space left on device"
    for text in told:
        assert text.startswith("SaveError: output_dir: ")
        assert "checkpoint-2 could not be written" in text
        assert f"process {failing} failed: [Errno 28] No space left on device" in text
    remove_leftovers(tmp_path / "output")
    assert names(tmp_path / "output") == ["checkpoint-1"]


def die_while_saving(dying: int, size: int, shared: Path, output: Path) -> None:
    rank = this_rank()
    saver = Saver(output, ranks_through(shared, rank, size), asynchronous=True)
    contents = checkpoint(rank, size, 2)
    if rank == dying:

        def die(*_: object) -> int:
            os.kill(os.getpid(), signal.SIGKILL)
            return 0

        os.pwrite = die
    saver.save(whole_directory_target(output / "checkpoint-2"), contents)
    saver.wait()


@pytest.mark.parametrize("dying", [0, 1])
def test_a_process_killed_while_it_saves_leaves_the_checkpoint_before_it(tmp_path: Path, dying: int) -> None:
    output = tmp_path / "output"
    before = save_alone(output, step=1)
    with pytest.raises(RankError):
        run_ranks(2, die_while_saving, dying, 2, exchange(tmp_path), output, timeout_s=60)
    assert not (output / "checkpoint-2").exists()
    remove_leftovers(output)
    assert names(output) == ["checkpoint-1"]
    found = find_checkpoint(output)
    assert found is not None
    assert found.path == before


def test_processes_that_do_not_share_the_folder_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.checkpoint.ranks.VISIBLE_WITHIN_S", 0.1)
    answers = iter([["mark", None], [None, "second-host"]])
    ranks = Ranks(0, 2, lambda _: next(answers))
    with pytest.raises(ConfigError, match=r"not there for 1 of 2 \(on second-host\)"):
        check_shared_folder(ranks, tmp_path)
    assert names(tmp_path) == []


def test_a_folder_that_all_processes_see_is_left_as_it_was(tmp_path: Path) -> None:
    check_shared_folder(Ranks(0, 2, lambda value: [value, None]), tmp_path)
    assert names(tmp_path) == []
