import re
from pathlib import Path

from trainer.config import migration_page
from trainer.config.names import ALIASES, DROPPED
from trainer.config.schema import CONFIGS

PAGE = Path(__file__).parents[3] / "docs" / "migration-from-paddlenlp.md"


def test_the_committed_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == migration_page.render(), (
        "run python -m trainer.config.migration_page"
    )


def test_each_name_is_said_to_become_one_thing() -> None:
    page = migration_page.render()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    same = re.findall(r"`(\w+)`", page.rpartition("tells:")[2])
    known = {name for config in CONFIGS.values() for name in config.model_fields}
    assert sorted([*rows, *same]) == sorted({*known, *ALIASES, *DROPPED})


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    migration_page.main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == migration_page.render()
