"""`regatta up`, as an operator sees it: one service for a data directory, whole or gone."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from cli.errors import CliError
from cli.local_service import url_of
from cli.up import Options, free_port, settings_of
from tests.service import Service, running_service, wait_until

PARTS = ("api", "scheduler", "worker", "valkey")
TIMEOUT_S = 60.0


def up(data_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", "up", "--data-dir", str(data_dir), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def is_ready(service: Service) -> bool:
    try:
        return service.client.get("/readyz").status_code == 200
    except httpx.HTTPError:
        return False


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    root = tmp_path_factory.mktemp("up")
    with running_service(root, root) as running:
        yield running


def test_it_announces_where_it_is(service: Service) -> None:
    announced = json.loads((service.data_dir / "run" / "server.json").read_text())
    assert announced == {"url": str(service.client.base_url).rstrip("/"), "pid": service.process.pid}
    assert (service.data_dir / "up.log").read_text().startswith(f"Regatta is ready at {announced['url']} ")
    for part in PARTS:
        assert psutil.pid_exists(service.child_pid(part))


def test_it_says_where_models_and_data_sets_are_read_from(service: Service) -> None:
    root = service.data_dir
    assert f"Models are read from {root}, data sets from {root}." in (service.data_dir / "up.log").read_text()


def test_a_second_one_on_the_same_data_says_who_has_it(service: Service) -> None:
    second = up(service.data_dir, "--port", "0")
    assert second.returncode == 1
    assert "Regatta already runs on this data directory" in second.stderr
    assert str(service.client.base_url).rstrip("/") in second.stderr
    assert f"(process {service.process.pid})" in second.stderr
    assert is_ready(service)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_killed_comes_back(service: Service, part: str) -> None:
    killed = psutil.Process(service.child_pid(part))
    killed.kill()
    wait_until(lambda: service.child_pid(part) != killed.pid, TIMEOUT_S, lambda: f"{part} did not come back")
    wait_until(lambda: is_ready(service), TIMEOUT_S, lambda: f"not ready again after {part} was killed")
    assert f"{part} was " in (service.data_dir / "up.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_one_signal_ends_all_of_it(tmp_path: Path, number: signal.Signals) -> None:
    with running_service(tmp_path, tmp_path) as service:
        parts = [psutil.Process(service.child_pid(part)) for part in PARTS]
        service.process.send_signal(number)
        assert service.process.wait(TIMEOUT_S) == 0
    assert all(is_gone(part) for part in parts)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["up.lock"]


def test_nothing_but_the_broker_outlives_a_killed_one_and_the_next_takes_it_over(tmp_path: Path) -> None:
    with running_service(tmp_path, tmp_path) as service:
        children = [psutil.Process(service.child_pid(part)) for part in PARTS[:3]]
        broker = psutil.Process(service.child_pid("valkey"))
        service.process.kill()
        wait_until(lambda: all(map(is_gone, children)), TIMEOUT_S, lambda: f"still there: {children}")
        assert not is_gone(broker)
        with running_service(tmp_path, tmp_path) as successor:
            assert successor.child_pid("valkey") == broker.pid
            assert is_ready(successor)
    assert is_gone(broker)


def test_a_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = up(tmp_path, "--port", str(port))
    assert done.returncode == 2
    assert f"Cannot listen on 127.0.0.1:{port}: Address already in use." in done.stderr
    assert not (tmp_path / "broker").exists()


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = up(tmp_path / "file")
    assert done.returncode == 2
    assert f"Cannot make {tmp_path / 'file'}" in done.stderr
    assert "Not a directory" in done.stderr


def test_a_setting_that_cannot_be_is_named(tmp_path: Path) -> None:
    done = up(tmp_path, "--devices", "tpu:1")
    assert done.returncode == 2
    assert "devices" in done.stderr
    assert "tpu:1" in done.stderr


def test_a_root_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = up(tmp_path, "--model-root", "nowhere")
    assert done.returncode == 2
    assert "Invalid value for '--model-root': dir 'nowhere' does not exist." in done.stderr


def test_devices_that_are_not_there_are_refused_before_anything_starts(tmp_path: Path) -> None:
    done = up(tmp_path, "--devices", "gpu:64")
    assert done.returncode == 2
    assert "got 'gpu:64'" in done.stderr
    assert not (tmp_path / "broker").exists()


def test_the_command_line_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_DATA_DIR", str(tmp_path / "environment"))
    monkeypatch.setenv("REGATTA_DEVICES", "cpu:3")
    settings = settings_of(Options(data_dir=tmp_path / "given", port=0))
    assert settings.data_dir == tmp_path / "given"
    assert settings.work_dir == tmp_path / "given" / "work"
    assert (settings.devices, settings.api_port) == ("cpu:3", 0)


def test_without_roots_models_and_data_sets_have_folders_in_the_data_directory(tmp_path: Path) -> None:
    settings = settings_of(Options(data_dir=tmp_path, model_roots=(tmp_path / "mine",)))
    assert settings.model_roots == (tmp_path / "mine",)
    assert settings.data_roots == (tmp_path / "datasets",)
    assert (tmp_path / "datasets").is_dir()


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(CliError, match=r"Cannot listen on 192\.0\.2\.1:0"):
        free_port("192.0.2.1", 0)


def test_clients_on_this_machine_use_loopback_when_the_server_listens_everywhere() -> None:
    assert url_of("0.0.0.0", 80) == "http://127.0.0.1:80"  # noqa: S104  (nothing is bound)
    assert url_of("::1", 80) == "http://[::1]:80"
    assert url_of("10.0.0.7", 80) == "http://10.0.0.7:80"
