"""The short form of `make chaos`: parts are killed, frozen and cut off, and no job notices."""

import shutil
from pathlib import Path

import pytest

from tests.chaos.faults import KINDS, plan
from tests.chaos.run import Options, chaos

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def test_jobs_of_all_tasks_come_through_half_a_minute_of_chaos(tmp_path: Path) -> None:
    options = Options(seed=7, seconds=20, jobs=8, steps=40, step_s=0.1, hosts=2, sample=1, pause_s=(0.5, 2.0))
    report, folder = chaos(options, tmp_path)
    assert report.complaints == [], f"{report.facts}; see {folder}"
    assert sum(report.facts["faults"].values()) >= 5
    shutil.rmtree(folder)


def test_a_seed_names_the_same_faults_again_and_a_long_run_has_all_kinds() -> None:
    assert plan(3, 600) == plan(3, 600) != plan(4, 600)
    assert {planned.kind for planned in plan(3, 1200)} == set(KINDS)
