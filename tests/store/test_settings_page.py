"""The page of settings is what the declarations say."""

from store.settings import Settings
from store.settings_page import FILE, render


def test_the_committed_page_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == render()


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())
