"""Every trainer here has a supervisor process of its own, because that owns all its descendants."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.worker.waiting import wait_until
from worker.process import Trainer

SUPERVISOR = """
import json, os, signal, sys, time
from pathlib import Path
from worker.process import Trainer, become_subreaper

end, code = sys.argv[1:]
become_subreaper()
with open("output", "wb") as output:
    trainer = Trainer([sys.executable, "-c", code], Path("work").absolute(), dict(os.environ), output)
Path("trainer.pid").write_text(str(trainer.pid))
while end != "wait" and not Path("work/pids").exists():
    time.sleep(0.01)
{"wait": lambda: None, "terminate": trainer.terminate, "kill": trainer.kill,
 "crash": lambda: os.kill(trainer.pid, signal.SIGKILL)}[end]()
while (exit_code := trainer.poll()) is None:
    time.sleep(0.01)
print(json.dumps([exit_code, trainer.kill_remaining()]))
"""

GRANDCHILDREN = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
pids = [subprocess.Popen(sleep).pid, subprocess.Popen(sleep, start_new_session=True).pid]
open("pids.tmp", "w").write(" ".join(map(str, pids)))
os.rename("pids.tmp", "pids")
time.sleep(600)
"""

SLEEP = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def _work(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()


def supervise(folder: Path, code: str, end: str = "wait") -> tuple[int, bool]:
    """Run `code` as a trainer, bring about its end: (exit code, nothing is left behind)."""
    command = [sys.executable, "-c", SUPERVISOR, end, code]
    exit_code, clean = json.loads(subprocess.check_output(command, cwd=folder, timeout=30))
    return exit_code, clean


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_output_goes_to_the_file_and_the_exit_code_comes_back(tmp_path: Path):
    code = "import os, sys; print(os.getcwd(), flush=True); print('oops', file=sys.stderr); sys.exit(3)"
    assert supervise(tmp_path, code) == (3, True)
    assert (tmp_path / "output").read_text() == f"{tmp_path}/work\noops\n"


def test_the_end_by_a_signal_is_a_negative_code(tmp_path: Path):
    assert supervise(tmp_path, "import os; os.kill(os.getpid(), 11)") == (-signal.SIGSEGV, True)


@pytest.mark.parametrize(
    ("end", "code"), [("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL), ("crash", -signal.SIGKILL)]
)
def test_no_descendant_outlives_the_trainer_even_in_a_session_of_its_own(tmp_path: Path, end: str, code: int):
    assert supervise(tmp_path, GRANDCHILDREN, end) == (code, True)
    assert not any(alive(int(word)) for word in (tmp_path / "work" / "pids").read_text().split())


def test_the_trainer_dies_with_its_supervisor(tmp_path: Path):
    command = [sys.executable, "-c", SUPERVISOR, "wait", SLEEP]
    with subprocess.Popen(command, cwd=tmp_path) as supervisor:
        wait_until(lambda: (tmp_path / "trainer.pid").exists() and (tmp_path / "trainer.pid").read_text())
        pid = int((tmp_path / "trainer.pid").read_text())
        assert alive(pid)
        supervisor.kill()
    wait_until(lambda: not alive(pid))


def test_a_command_that_is_not_there_is_an_error(tmp_path: Path):
    with (tmp_path / "output").open("wb") as output, pytest.raises(FileNotFoundError):
        Trainer(["no-such-trainer"], tmp_path, {}, output)
