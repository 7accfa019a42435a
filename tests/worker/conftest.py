import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.broker import Broker, ensure_broker
from store.database import Database
from store.settings import Settings
from tests.worker.bench import PROGRAMS, Bench
from worker.strays import live_runners


def host_settings(data_dir: Path) -> Settings:
    """Settings of a host that waits for little. Its leases last; `Bench.lose` ends one."""
    return Settings(
        data_dir=data_dir,
        host_name="host-a",
        heartbeat_s=0.5,
        lease_ttl_s=60,
        lease_grace_s=0.5,
        stop_grace_s=30,
        poll_s=0.2,
        retry_backoff_s=0.5,
        log_flush_s=0.2,
    )  # pyright: ignore[reportCallIssue]


@contextlib.contextmanager
def running_bench(settings: Settings, migrated_sqlite: Path) -> Iterator[Bench]:
    """A host with a stand-in for the trainer, and a database and broker of its own; no runner outlives it."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    shutil.copy(migrated_sqlite, settings.data_dir / "regatta.db")
    database, broker = Database(settings.database_url), ensure_broker(settings.data_dir)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(PROGRAMS))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield Bench(settings, database)
    for runner in live_runners(settings.work_dir):
        runner.process.kill()
    broker.stop()
    database.dispose()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return host_settings(tmp_path / "data")


@pytest.fixture
def database(settings: Settings, migrated_sqlite: Path) -> Iterator[Database]:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    shutil.copy(migrated_sqlite, settings.data_dir / "regatta.db")
    database = Database(settings.database_url)
    yield database
    database.dispose()


@pytest.fixture
def restart_broker(settings: Settings, broker: Broker) -> Iterator[Callable[[], None]]:
    """Start the broker again after it was killed."""
    restarted: list[Broker] = []
    yield lambda: restarted.append(ensure_broker(settings.data_dir))
    for server in restarted:
        server.stop()


@pytest.fixture
def bench(
    settings: Settings, database: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    """A host with a stand-in for the trainer; no runner outlives the test."""
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield Bench(settings, database)
    for runner in live_runners(settings.work_dir):
        runner.process.kill()
