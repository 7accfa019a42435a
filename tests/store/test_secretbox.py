"""What is kept secret is unreadable at rest, and survives the change of its key."""

import stat
from pathlib import Path

import pytest

from store.secretbox import NoSecretKey, SecretBox, Unreadable, ensure_key_file, key_file, new_key, open_box
from store.settings import Settings


def test_a_text_comes_back_and_is_not_to_be_read_meanwhile() -> None:
    box = SecretBox([new_key()])
    stored = box.encrypt("hf_märchen")
    assert "hf_" not in stored
    assert box.decrypt(stored) == "hf_märchen"


@pytest.mark.parametrize("damage", [lambda text: text[:-8] + "AAAAAAA=", lambda _: "", lambda _: "nonsense"])
def test_what_was_changed_or_is_of_another_key_is_refused(damage) -> None:
    box = SecretBox([new_key()])
    with pytest.raises(Unreadable):
        box.decrypt(damage(box.encrypt("value")))
    with pytest.raises(Unreadable, match="REGATTA_SECRET_KEY"):
        SecretBox([new_key()]).decrypt(box.encrypt("value"))


def test_a_key_is_replaced_by_putting_the_new_one_first() -> None:
    old, new = new_key(), new_key()
    stored = SecretBox([old]).encrypt("value")
    both = SecretBox([new, old])
    assert both.decrypt(stored) == "value"
    assert SecretBox([new]).decrypt(both.reencrypt(stored)) == "value"


def test_without_a_key_it_is_said_where_one_belongs(tmp_path: Path) -> None:
    with pytest.raises(NoSecretKey, match="REGATTA_SECRET_KEY"):
        open_box(Settings(data_dir=tmp_path))


def test_the_key_file_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    ensure_key_file(settings)
    stored = open_box(settings).encrypt("value")
    ensure_key_file(settings)
    assert open_box(settings).decrypt(stored) == "value"
    assert stat.S_IMODE(key_file(settings).stat().st_mode) == 0o600


def test_the_settings_go_before_the_file(tmp_path: Path) -> None:
    key = new_key()
    settings = Settings(data_dir=tmp_path, secret_key=(key,))
    ensure_key_file(settings)
    assert not key_file(settings).exists()
    assert key not in repr(settings)
    assert SecretBox([key]).decrypt(open_box(settings).encrypt("value")) == "value"


def test_a_key_that_is_none_is_refused_without_being_shown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="32 bytes") as refusal:
        Settings(data_dir=tmp_path, secret_key=("hunter2",))
    assert "hunter2" not in str(refusal.value)
