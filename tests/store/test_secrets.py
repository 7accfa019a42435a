"""Secrets of projects and of single jobs."""

import pytest
from sqlalchemy import select

from store.database import Database
from store.errors import NotFound
from store.jobs import create_job
from store.projects import create_project
from store.secretbox import SecretBox, Unreadable, new_key
from store.secrets import (
    add_job_secrets,
    delete_secret,
    get_secret,
    list_secrets,
    name_problem,
    put_secret,
    rotate_secrets,
    secrets_of_job,
    value_problem,
)
from store.tables import JobEvent, Secret, Webhook
from tests.store.given import new_job, queued_job


def test_a_secret_is_replaced_listed_and_deleted(database: Database) -> None:
    with database.transaction() as session:
        first = put_secret(session, "default", "HF_TOKEN", "one", actor="boss").id
        assert put_secret(session, "default", "HF_TOKEN", "two", actor="boss").id == first
        put_secret(session, "default", "A_TOKEN", "three", actor="boss")
        assert [secret.name for secret in list_secrets(session, "default")] == ["A_TOKEN", "HF_TOKEN"]
        assert get_secret(session, "default", "HF_TOKEN").ciphertext == "two"
        delete_secret(session, "default", "HF_TOKEN", actor="boss")
        with pytest.raises(NotFound):
            delete_secret(session, "default", "HF_TOKEN")
        with pytest.raises(NotFound):
            put_secret(session, "nowhere", "HF_TOKEN", "one")
        events = list(session.execute(select(JobEvent).order_by(JobEvent.id)).scalars())
    assert [event.type for event in events] == [
        "secret_created",
        "secret_replaced",
        "secret_created",
        "secret_deleted",
    ]
    assert {event.actor for event in events} == {"boss"}
    assert events[0].data == {"name": "HF_TOKEN"}


def test_a_job_gets_its_own_secrets_before_those_of_its_project_and_nobody_elses(database: Database) -> None:
    with database.transaction() as session:
        create_project(session, "other")
        put_secret(session, "default", "HF_TOKEN", "project's")
        put_secret(session, "default", "B_TOKEN", "project's")
        put_secret(session, "other", "C_TOKEN", "other's")
        job, neighbour = queued_job(session), queued_job(session)
        add_job_secrets(session, job.id, "default", {"HF_TOKEN": "job's", "D_TOKEN": "job's"})
        assert secrets_of_job(session, job.id) == {
            "HF_TOKEN": "job's",
            "B_TOKEN": "project's",
            "D_TOKEN": "job's",
        }
        assert secrets_of_job(session, neighbour.id) == {"HF_TOKEN": "project's", "B_TOKEN": "project's"}
        assert [secret.name for secret in list_secrets(session, "default")] == ["B_TOKEN", "HF_TOKEN"]


def test_a_new_job_brings_its_secrets_along(database: Database) -> None:
    with database.transaction() as session:
        job = create_job(session, new_job(secrets={"HF_TOKEN": "ciphertext"}))
        assert secrets_of_job(session, job.id) == {"HF_TOKEN": "ciphertext"}


def test_all_are_encrypted_anew_when_the_key_changes(database: Database) -> None:
    old, new = new_key(), new_key()
    with database.transaction() as session:
        for name in ("A_TOKEN", "B_TOKEN"):
            put_secret(session, "default", name, SecretBox([old]).encrypt(name))
        hook = SecretBox([old]).encrypt("whsec_signs")
        session.add(Webhook(job_id=queued_job(session).id, url="https://x", secret=hook, events=[]))
    with database.transaction() as session:
        assert rotate_secrets(session, SecretBox([new, old])) == 3
    with database.transaction() as session:
        texts = session.execute(select(Secret.ciphertext).order_by(Secret.name)).scalars()
        assert [SecretBox([new]).decrypt(text) for text in texts] == ["A_TOKEN", "B_TOKEN"]
        signs = session.execute(select(Webhook.secret)).scalar_one()
        assert SecretBox([new]).decrypt(signs) == "whsec_signs"
        with pytest.raises(Unreadable):
            rotate_secrets(session, SecretBox([old]))


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "A", "X1"])
def test_good_names(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "LD_PRELOAD",
        "PYTHONPATH",
        "REGATTA_ROOTS",
        "hf_token",
        "",
        "A B",
        "A=B",
        "1A",
        "Ä",
        "A" * 65,
        "HOME",
        "CUDA_VISIBLE_DEVICES",
        "PADDLE_MASTER",
        "OMP_NUM_THREADS",
        "A\n",
        "BASH_ENV",
    ],
)
def test_names_that_would_change_the_trainer_or_are_none(name: str) -> None:
    assert name_problem(name)


def test_values_that_cannot_be_masked_are_refused_without_being_told() -> None:
    assert value_problem("hf_abcdefgh") == ""
    for value in ("short", "x" * 5000, "two\nlines of it", "schlüssel-wort", 12345678, "nul\0nulnul"):
        problem = value_problem(value)
        assert problem
        assert str(value) not in problem
