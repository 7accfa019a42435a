from pathlib import Path

import pytest

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


def test_asking_for_help_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        docs.main(["--help"])
    assert ended.value.code == 0
    assert "FILE" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
