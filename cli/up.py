"""`regatta up`: the whole service on one machine, in one data directory."""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.errors import INVALID, CliError
from cli.local_service import LocalService
from cli.output import console
from cli.settings import check_devices, read_settings, safe_address
from cli.stop_signals import StopSignals
from cli.supervisor import write_atomically
from store.broker import BrokerError
from store.secretbox import ensure_key_file
from store.settings import Settings

TICK_S = 0.2
READY_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Options:
    """The command line of `regatta up`; None and () leave a setting to the environment and its default."""

    data_dir: Path | None = None
    host: str | None = None
    port: int | None = None
    devices: str | None = None
    model_roots: tuple[Path, ...] = ()
    data_roots: tuple[Path, ...] = ()


def run_up(options: Options) -> None:
    """Run until SIGINT, SIGTERM or SIGHUP; a second one ends it without waiting for checkpoints.

    Raises:
        CliError: another `up` has this data directory, a setting cannot be, or a part does not start.
    """
    settings = settings_of(options)
    check_devices(settings)
    safe_address(settings)
    run_dir = settings.data_dir / "run"
    make_directory(run_dir)
    with only_one(run_dir), broker_errors(), StopSignals() as signals:
        settings = settings.model_copy(update={"api_port": free_port(settings.api_host, settings.api_port)})
        ensure_key_file(settings)
        service = LocalService(settings, console(stderr=True))
        announcement = run_dir / "server.json"
        try:
            service.start()
            if wait_until_ready(service, signals):
                write_atomically(announcement, json.dumps({"url": service.url, "pid": os.getpid()}) + "\n")
                print(ready(service.url, settings), flush=True)
            while not signals.asked:
                service.tend()
                time.sleep(TICK_S)
        finally:
            announcement.unlink(missing_ok=True)
            service.stop(hurry=lambda: signals.insisted)


def ready(url: str, settings: Settings) -> str:
    """What is said once everything runs."""
    models, data = (os.pathsep.join(map(str, roots)) for roots in (settings.model_roots, settings.data_roots))
    return (
        f"Regatta is ready at {url} (data in {settings.data_dir}; Ctrl-C ends it)\n"
        f"Models are read from {models}, data sets from {data}."
    )


def wait_until_ready(service: LocalService, signals: StopSignals) -> bool:
    """True once /readyz is green; False when a signal asks to end before.

    Raises:
        CliError: a part keeps dying, or the service is not ready in time.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not signals.asked:
        service.tend()
        if service.is_ready():
            return True
        if broken := service.broken_part():
            raise CliError(
                f"{broken.spec.name} does not start. The end of {broken.spec.log}:\n{tail(broken.spec.log)}"
            )
        if time.monotonic() > deadline:
            raise CliError(f"The service was not ready after {READY_TIMEOUT_S:g} s. Logs: {service.log_dir}")
        time.sleep(TICK_S / 4)
    return False


@contextlib.contextmanager
def only_one(run_dir: Path) -> Iterator[None]:
    """Hold the data directory for this process; the kernel lets go of it however the process ends."""
    with (run_dir / "up.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CliError(f"Regatta already runs on this data directory{whereabouts(run_dir)}.") from error
        # What a killed process announced is not true any more.
        (run_dir / "server.json").unlink(missing_ok=True)
        yield


@contextlib.contextmanager
def broker_errors() -> Iterator[None]:
    try:
        yield
    except BrokerError as error:
        raise CliError(f"Valkey: {error}") from error


def whereabouts(run_dir: Path) -> str:
    try:
        announced: dict[str, Any] = json.loads((run_dir / "server.json").read_text())
    except (OSError, ValueError):
        return " (it is still starting)"
    return f": {announced['url']} (process {announced['pid']})"


def settings_of(options: Options) -> Settings:
    """The environment's settings with the command line's in their place.

    Without any root, models and data sets are read from two folders of the data directory.
    """
    given: dict[str, Any] = {
        "data_dir": options.data_dir,
        "api_host": options.host,
        "api_port": options.port,
        "devices": options.devices,
        "model_roots": options.model_roots,
        "data_roots": options.data_roots,
    }
    settings = read_settings({name: value for name, value in given.items() if value not in (None, ())})
    roots = {"model_roots": settings.data_dir / "models", "data_roots": settings.data_dir / "datasets"}
    missing = {name: (path,) for name, path in roots.items() if not getattr(settings, name)}
    for (path,) in missing.values():
        make_directory(path)
    return settings.model_copy(update=missing)


def make_directory(path: Path) -> None:
    """Raises CliError when it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(
            f"Cannot make {path}: {error.strerror}. Choose another --data-dir.", INVALID
        ) from error


def free_port(host: str, port: int) -> int:
    """`port` when it can be listened on, any free one for 0.

    Raises:
        CliError: the port is taken, or the host is not an address of this machine.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return probe.getsockname()[1]
    except OSError as error:
        raise CliError(
            f"Cannot listen on {host}:{port}: {error.strerror}. "
            "Choose another --host or --port (0: any free port).",
            INVALID,
        ) from error


def tail(path: Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
