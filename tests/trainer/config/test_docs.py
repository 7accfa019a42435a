from pathlib import Path

from trainer.config import docs
from trainer.config.schema import CONFIGS

PAGE = Path(__file__).parents[3] / "docs" / "config.md"


def test_the_committed_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == docs.render(), "run python -m trainer.config.docs"


def test_the_page_has_every_argument() -> None:
    page = docs.render()
    for config in CONFIGS.values():
        assert [name for name in config.model_fields if f"| `{name}` |" not in page] == []


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    docs.main([str(tmp_path / "pages" / "config.md")])
    assert (tmp_path / "pages" / "config.md").read_text(encoding="utf-8") == docs.render()
