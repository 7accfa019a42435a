"""The words that the dashboard offers to choose from are those of the API."""

import re

from api.web.pages import STATIC
from store.reasons import Fault
from store.states import TERMINAL, Status
from trainer.config import TASKS

WORDS = (STATIC / "js/jobs/words.js").read_text()


def listed(name: str) -> list[str]:
    """The words between the brackets of a constant."""
    found = re.search(rf"const {name} = (?:new Set\()?\[(.*?)\]", WORDS, re.DOTALL)
    assert found, name
    return re.findall(r'"(\w+)"', found[1])


def test_every_status_can_be_filtered_by() -> None:
    assert listed("STATUSES") == [status.value for status in Status]


def test_every_task_can_be_filtered_by() -> None:
    assert sorted(listed("TASKS")) == sorted(TASKS)


def test_what_is_over_is_known() -> None:
    assert sorted(listed("TERMINAL")) == sorted(TERMINAL)


def test_every_fault_has_words() -> None:
    faults = re.search(r"const FAULTS = \{(.*?)\};", WORDS, re.DOTALL)
    assert faults
    assert set(re.findall(r"^\s*(\w+):", faults[1], re.MULTILINE)) == {fault.value for fault in Fault}
