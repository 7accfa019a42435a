"""The server as a process of its own."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx

from store.settings import Settings
from tests.api.parts import streaming, wait_until


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_sigterm_ends_open_streams_and_the_process(settings: Settings, config: dict) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    roots = {name: str(getattr(settings, name)[0]) for name in ("model_roots", "data_roots")}
    given = {"data_dir": settings.data_dir, "database_url": settings.database_url, "api_port": port} | roots
    env = os.environ | {f"REGATTA_{name.upper()}": str(value) for name, value in given.items()}
    process = subprocess.Popen([sys.executable, "-c", "from api.server import run; run()"], env=env)
    try:
        wait_until(lambda: answers(url))
        with httpx.Client(base_url=url, timeout=20) as client:
            job = client.post("/jobs", json={"task": "finetune", "config": config}).json()
            with streaming(client, f"/jobs/{job['id']}/events") as events:
                assert next(events).type == "event"
                process.send_signal(signal.SIGTERM)
                assert [event.type for event in events] == ["bye"]
        assert process.wait(20) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait(20)


def test_port_0_is_any_free_port_whatever_the_settings_say(settings: Settings, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = {"data_dir": settings.data_dir, "api_port": taken.getsockname()[1]}
        env = os.environ | {f"REGATTA_{name.upper()}": str(value) for name, value in given.items()}
        log = tmp_path / "api.log"
        with log.open("w") as output:
            command = [sys.executable, "-c", "from api.server import run; run(port=0)"]
            process = subprocess.Popen(command, env=env, stderr=output)
        try:
            wait_until(lambda: "Uvicorn running on http://127.0.0.1:" in log.read_text())
        finally:
            process.kill()
            process.wait(20)
