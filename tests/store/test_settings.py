"""Settings from the environment."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from store.broker import MAX_SOCKET_PATH
from store.settings import Settings


def test_everything_lies_in_the_data_directory_by_default(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)

    assert settings.database_url == f"sqlite:///{tmp_path}/regatta.db"
    assert settings.broker_url == f"unix://{tmp_path}/broker/v.sock?db=0"
    assert settings.celery_broker_url == f"redis+socket://{tmp_path}/broker/v.sock?virtual_host=0"
    assert settings.artifacts_url == f"file://{tmp_path}/artifacts"
    assert settings.work_dir == tmp_path / "work"
    assert settings.host_name


def test_environment_variables_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "DATA_DIR": "here",
        "DATABASE_URL": "postgresql+psycopg://u@h/d",
        "BROKER_URL": "redis://h:1/2",
        "MODEL_ROOTS": "/a:/b c",
        "DATA_ROOTS": '["/x:y", "z"]',
        "LEASE_TTL_S": "5",
        "DEVICES": "gpu",
    }.items():
        monkeypatch.setenv(f"REGATTA_{name}", value)
    settings = Settings()

    assert settings.data_dir == tmp_path / "here"
    assert settings.database_url == "postgresql+psycopg://u@h/d"
    assert settings.celery_broker_url == "redis://h:1/2"
    assert settings.model_roots == (Path("/a"), Path("/b c"))
    assert settings.data_roots == (Path("/x:y"), tmp_path / "z")
    assert (settings.lease_ttl_s, settings.devices) == (5.0, "gpu")


def test_a_unix_broker_keeps_its_database_number(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, broker_url="unix:///run/v.sock?db=3")
    assert settings.celery_broker_url == "redis+socket:///run/v.sock?virtual_host=3"


@pytest.mark.parametrize(
    ("name", "value"), [("devices", "tpu:1"), ("devices", "gpu:x"), ("heartbeat_s", 0), ("host_name", "a b")]
)
def test_values_that_make_no_sense_are_refused(name: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings(data_dir=tmp_path, **{name: value})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "database_url",
            "postgres://u:secret@h/d",
            "a URL of postgres://, expected sqlite:// or postgresql://",
        ),
        ("broker_url", "amqp://u:secret@h", "a URL of amqp://, expected redis:// or rediss:// or unix://"),
        ("broker_url", "h:6379", "not a URL, expected one that begins with redis://"),
        ("artifacts_url", "/artifacts", "not a URL, expected one that begins with file://"),
        ("database_url", "postgresql://u:secret@h:x/d", "a URL whose port is not a number"),
        ("database_url", "postgresql://u:secret/1@h/d", "in a password / is written %2F"),
        ("broker_url", "redis://:secret@h:x/0", "a URL whose port is not a number"),
    ],
)
def test_urls_that_nothing_can_be_reached_by_are_refused(
    name: str, value: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError) as refusal:
        Settings(data_dir=tmp_path, **{name: value})  # pyright: ignore[reportArgumentType]
    (problem,) = refusal.value.errors()
    assert problem["loc"] == (name,)
    assert reason in problem["msg"]
    assert "secret" not in problem["msg"]


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_a_long_data_directory_gets_a_short_socket(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / ("x" * 120))
    socket = settings.broker_url.removeprefix("unix://").removesuffix("?db=0")
    assert len(socket) <= MAX_SOCKET_PATH
    assert settings.broker_url == Settings(data_dir=tmp_path / ("x" * 120)).broker_url
    assert settings.broker_url != Settings(data_dir=tmp_path / ("y" * 120)).broker_url
