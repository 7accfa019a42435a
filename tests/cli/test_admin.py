"""Keys and projects on the command line: in the database for the first key, then through the server."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from store.database import Database
from store.keys import find_key
from store.secretbox import new_key
from store.settings import Settings
from tests.api.parts import serving


def regatta(*words: str, **variables: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200", "NO_COLOR": "1"} | variables)


def test_the_first_key_is_made_in_the_database_and_the_others_through_the_server(
    database_url: str, tmp_path: Path, database: Database
) -> None:
    direct = {"REGATTA_DATABASE_URL": database_url}
    first = regatta("keys", "create", "boss", "--scope", "admin", "--database", **direct)
    assert first.exit_code == 0, first.stderr
    settings = Settings(data_dir=tmp_path, database_url=database_url, api_keys_required=True)
    with serving(settings) as server:
        boss = {"REGATTA_URL": server.url, "REGATTA_API_KEY": first.stdout.strip()}
        assert regatta("projects", "create", "fleet", "--most-running", "2", **boss).exit_code == 0
        limited = regatta("projects", "limits", "fleet", "--most-running", "none", "--json", **boss)
        assert json.loads(limited.stdout)["most_running"] is None
        made = regatta("keys", "create", "ci", "--project", "fleet", "--days", "1", "--json", **boss)
        key = json.loads(made.stdout)
        assert (key["project"], key["scopes"]) == ("fleet", ["read", "write"])
        listed = regatta("keys", "list", **boss)
        assert key["id"] in listed.stdout
        assert key["key"] not in listed.stdout
        assert regatta("jobs", REGATTA_URL=server.url, REGATTA_API_KEY=key["key"]).exit_code == 0
        assert regatta("keys", "revoke", key["id"], **boss).exit_code == 0
    with database.reading() as session:
        assert find_key(session, key["key"]) is None


def test_a_server_that_wants_a_key_says_so(database_url: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url=database_url, api_keys_required=True)
    with serving(settings) as server:
        done = regatta("jobs", REGATTA_URL=server.url)
    assert done.exit_code == 1
    assert "Authorization: Bearer" in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["keys", "create", "ci", "--project", "nowhere"], "no project 'nowhere'"),
        (["keys", "create", "ci", "--scope", "root"], "expected one of"),
        (["keys", "revoke", "nope"], "no key 'nope'"),
        (["projects", "create", "default"], "'default' already"),
        (["projects", "limits", "nope", "--most-queued", "1"], "no project 'nope'"),
        (["projects", "limits", "default", "--most-queued", "few"], "expected a number or none"),
    ],
)
def test_what_cannot_be_done_in_the_database_is_one_sentence(
    migrated_sqlite: Path, words: list[str], complaint: str
) -> None:
    done = regatta(*words, "--database", REGATTA_DATABASE_URL=f"sqlite:///{migrated_sqlite}")
    assert done.exit_code in (1, 2)
    assert complaint in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["api"], ["up"]])
def test_a_server_without_keys_stays_on_loopback(command: list[str], tmp_path: Path) -> None:
    variables = {"REGATTA_DATA_DIR": str(tmp_path), "REGATTA_API_HOST": "0.0.0.0"}  # noqa: S104
    done = regatta(*command, "--port", "0", **variables)
    assert done.exit_code == 2
    assert "REGATTA_API_KEYS_REQUIRED=true" in done.stderr


def test_a_key_that_is_none_is_not_sent_and_not_shown() -> None:
    done = regatta("jobs", REGATTA_API_KEY="schlüssel")
    assert done.exit_code == 2
    assert "rgt_<prefix>_<random>" in done.stderr
    assert "schlüssel" not in done.stderr


def test_secrets_and_events_on_the_command_line(migrated_sqlite: Path, tmp_path: Path) -> None:
    shutil.copy(migrated_sqlite, tmp_path / "regatta.db")
    old, new = new_key(), regatta("secrets", "new-key").stdout.strip()
    url = f"sqlite:///{tmp_path / 'regatta.db'}"
    settings = Settings(data_dir=tmp_path, database_url=url, secret_key=(old,))
    with serving(settings) as server:
        here = {"REGATTA_URL": server.url}
        set_it = CliRunner().invoke(app, ["secrets", "set", "HF_TOKEN"], input="hf_abcdefgh\n", env=here)
        assert set_it.exit_code == 0, set_it.output
        assert "HF_TOKEN" in regatta("secrets", "list", **here).stdout
        refused = CliRunner().invoke(app, ["secrets", "set", "PATH"], input="/tmp:/bin:/x\n", env=here)
        assert refused.exit_code == 2
        told = regatta("events", "--type", "secret_created", **here).stdout
        assert "local  secret_created  secret HF_TOKEN" in told
        assert "hf_" not in told
        direct = {"REGATTA_DATABASE_URL": url, "REGATTA_DATA_DIR": str(tmp_path)}
        rotated = regatta("secrets", "rotate", REGATTA_SECRET_KEY=f"{new}:{old}", **direct)
        assert rotated.stdout == "Secrets encrypted with the first key: 1.\n"
        lost = regatta("secrets", "rotate", REGATTA_SECRET_KEY=old, **direct)
        assert lost.exit_code == 1
        assert "REGATTA_SECRET_KEY" in lost.stderr
        assert regatta("secrets", "delete", "HF_TOKEN", **here).exit_code == 0
        assert json.loads(regatta("secrets", "list", "--json", **here).stdout) == []


def test_a_secret_to_be_sent_has_to_be_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"task": "finetune", "config": {}}')
    done = regatta("submit", str(tmp_path / "job.json"), "--secret", "NOT_SET_HERE")
    assert done.exit_code == 2
    assert "NOT_SET_HERE is not set" in done.stderr
