"""The logs of two hosts become one, in which every line has its number and stands once."""

from pathlib import Path

import pytest

from store.attempts import Node, claim, place
from store.database import Database
from store.errors import ArtifactsUnavailable
from store.hosts import register_host
from store.jobs import existing_job
from store.logs import LogLine
from tests.worker.bench import Bench
from worker import gang_logs
from worker.gang_logs import GangShipper
from worker.launch import prepare
from worker.services import Services


@pytest.fixture
def job_id(bench: Bench, database: Database) -> str:
    job_id = bench.submit(nodes=2)
    with database.transaction() as session:
        for name in "ab":
            register_host(session, name, device="cpu", devices=[{"index": 0}])
        assert place(session, existing_job(session, job_id), [Node("a", (0,)), Node("b", (0,))])
    return job_id


class Host:
    """One host of the two, without a trainer."""

    def __init__(self, bench: Bench, job_id: str, name: str) -> None:
        settings = bench.settings.model_copy(
            update={"host_name": name, "work_dir": bench.settings.work_dir / name, "log_flush_s": 0.01}
        )
        with bench.database.transaction() as session:
            claimed = claim(session, job_id, 1, name, name, ttl_s=60)
        assert claimed is not None
        self.spec = prepare(settings, claimed, name, 0.0)
        self.services = Services.connect(settings)
        self.restart()

    def restart(self) -> None:
        self.shipper = GangShipper(self.services, self.spec, self.spec.folder, self.spec.rank)

    @property
    def raw_log(self) -> Path:
        return self.spec.folder.raw_log(self.spec.first_rank)

    def write(self, *lines: str) -> None:
        with self.raw_log.open("a") as log:
            log.writelines(f"{line}\n" for line in lines)

    def ship(self, *, final: bool = False) -> None:
        while self.shipper.step(final):
            pass


def told(lines: list[LogLine]) -> list[tuple[int, int, str]]:
    return [(line.seq, line.rank, line.line) for line in lines]


def test_two_hosts_write_one_log_though_one_is_interrupted(
    bench: Bench, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_logs, "FLUSH_S", 0.0)
    a, b = (Host(bench, job_id, name) for name in "ab")
    a.write("a1", "a2")
    b.write("b1")
    a.ship()
    b.ship()
    b.write("b2")
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise ArtifactsUnavailable("away")

        broken.setattr(b.services.archive, "append", fail)
        with pytest.raises(ArtifactsUnavailable):
            b.ship()  # numbered, but not stored
    a.write("a3")
    a.ship()
    assert told(bench.archived(job_id)) == [(1, 0, "a1"), (2, 0, "a2"), (3, 1, "b1"), (5, 0, "a3")]
    b.restart()
    b.write("b3")
    b.ship(final=True)
    a.ship(final=True)
    whole = [(1, 0, "a1"), (2, 0, "a2"), (3, 1, "b1"), (4, 1, "b2"), (5, 0, "a3"), (6, 1, "b3")]
    assert told(bench.archived(job_id)) == told(bench.logs(job_id)) == whole
    assert len(bench.artifacts.list(f"jobs/{job_id}/logs")) == 1
