"""Encrypts what the database keeps but must not give away: secrets of users, and what signs announcements.

The keys come from REGATTA_SECRET_KEY or, when that is not set, from a file in the data directory that
`regatta up` makes. The first key encrypts and all of them decrypt, so that a key can be replaced: put the new
one first, run `regatta secrets rotate`, take the old one away.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from store.errors import StoreError
from store.settings import Settings

KEY_FILE = "secret.key"
"""In the data directory: one key a line, readable by its owner alone."""


class NoSecretKey(StoreError):  # noqa: N818
    """This process has no key, so nothing can be kept secret."""


class Unreadable(StoreError):  # noqa: N818
    """A text that none of this process's keys has encrypted."""


class SecretBox:
    """Encrypts and decrypts with the keys of this service."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._fernet = MultiFernet([Fernet(key) for key in keys])

    def encrypt(self, text: str) -> str:
        """The text in a form that only a holder of the key can read, and nobody can change unnoticed."""
        return self._fernet.encrypt(text.encode()).decode()

    def decrypt(self, ciphertext: str) -> str:
        """The text that was encrypted. Raises: Unreadable."""
        try:
            return self._fernet.decrypt(ciphertext).decode()
        except InvalidToken as error:
            raise Unreadable(_UNREADABLE) from error

    def reencrypt(self, ciphertext: str) -> str:
        """The same text, encrypted with the first key. Raises: Unreadable."""
        try:
            return self._fernet.rotate(ciphertext).decode()
        except InvalidToken as error:
            raise Unreadable(_UNREADABLE) from error


_UNREADABLE = (
    "a secret was encrypted with a key that is not here: add that key to REGATTA_SECRET_KEY, "
    "behind the present one"
)


def open_box(settings: Settings) -> SecretBox:
    """The box of these settings. Raises: NoSecretKey."""
    if settings.secret_key:
        return SecretBox(settings.secret_key)
    try:
        keys = key_file(settings).read_text().split()
    except FileNotFoundError:
        keys = []
    if not keys:
        raise NoSecretKey(
            "there is no key to encrypt secrets with: set REGATTA_SECRET_KEY to the same value for the API "
            "and for every worker (`regatta secrets new-key` makes one)"
        )
    try:
        return SecretBox(keys)
    except ValueError as error:
        raise NoSecretKey(f"{key_file(settings)}: a line is no key of 32 bytes in URL-safe base64") from error


def ensure_key_file(settings: Settings) -> None:
    """Make the key file of the data directory, unless there is one or the settings name a key."""
    path = key_file(settings)
    if settings.secret_key or path.exists():
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(new_key() + "\n")
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileExistsError):  # another process was faster: its key counts
        os.link(temporary, path)
    temporary.unlink()


def key_file(settings: Settings) -> Path:
    """Where the key is when the settings name none."""
    return settings.data_dir / KEY_FILE


def new_key() -> str:
    """A random key."""
    return Fernet.generate_key().decode()
