"""Secrets: values that trainers get in their environment. The database holds them encrypted.

A secret belongs to a project, for all its jobs, or to one job alone, where it goes before one of its
project's of the same name.
"""

import re
from collections.abc import Mapping

from sqlalchemy import bindparam, delete, or_, select
from sqlalchemy.orm import Session

from store.audit import add_action
from store.clock import database_now
from store.errors import NotFound
from store.projects import lock_project
from store.secretbox import SecretBox
from store.tables import Base, Job, Secret, Webhook

MOST_SECRETS = 64
"""Of one job."""
SHORTEST, LONGEST = 8, 4096
"""Characters of a value: shorter ones would be found everywhere in a log when they are masked."""

_SECRETS = Base.metadata.tables["secrets"]
_OF_PROJECT = select(_SECRETS.c.name, _SECRETS.c.ciphertext).where(
    _SECRETS.c.project == bindparam("project"), _SECRETS.c.job_id.is_(None)
)
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)
_TAKEN = frozenset({"ENV", "HOME", "IFS", "LANG", "LANGUAGE", "PATH", "PWD", "SHELL", "TMPDIR", "USER"})
_TAKEN_PREFIXES = (
    "AWS_",
    "BASH",
    "CUDA_",
    "DYLD_",
    "FLAGS_",
    "GLIBC_",
    "LC_",
    "LD_",
    "MALLOC_",
    "NCCL_",
    "NVIDIA_",
    "OMP_",
    "PADDLE_",
    "PYTHON",
    "REGATTA_",
)


def name_problem(name: str) -> str:
    """Why a secret cannot have this name; empty when it can."""
    if not _NAME.fullmatch(name):
        return "expected upper-case letters, digits and _, beginning with a letter, at most 64"
    if name in _TAKEN or name.startswith(_TAKEN_PREFIXES):
        return "which would change how a trainer runs; it is no secret"
    return ""


def value_problem(value: object) -> str:
    """Why this cannot be the value of a secret, without telling it; empty when it can."""
    if not isinstance(value, str):
        return f"got a value of type {type(value).__name__}, expected text"
    if not SHORTEST <= len(value) <= LONGEST:
        return f"got {len(value)} characters, expected {SHORTEST} to {LONGEST}"
    if not (value.isprintable() and value.isascii()):
        return "got a value with line breaks or characters that are not plain ASCII"
    return ""


def put_secret(session: Session, project: str, name: str, ciphertext: str, *, actor: str = "") -> Secret:
    """Keep a secret of a project in place of the one of that name. Raises: NotFound without the project."""
    lock_project(session, project)
    now = database_now(session)
    secret = _of_project(session, project, name)
    kind = "secret_replaced" if secret else "secret_created"
    if secret is None:
        secret = Secret(project=project, name=name, created_at=now)
        session.add(secret)
    secret.ciphertext, secret.updated_at = ciphertext, now
    session.flush()
    add_action(session, kind, f"secret {name}", project=project, actor=actor, data={"name": name})
    return secret


def get_secret(session: Session, project: str, name: str) -> Secret:
    """A secret of a project. Raises: NotFound."""
    secret = _of_project(session, project, name)
    if secret is None:
        raise NotFound(f"project {project} has no secret {name!r}")
    return secret


def list_secrets(session: Session, project: str) -> list[Secret]:
    """The secrets of a project by name, those of its jobs left out."""
    query = select(Secret).where(Secret.project == project, Secret.job_id.is_(None)).order_by(Secret.name)
    return list(session.execute(query).scalars())


def secrets_of_project(session: Session, project: str) -> dict[str, str]:
    """The secrets of a project, encrypted, by name; those of its jobs left out."""
    return {row.name: row.ciphertext for row in session.execute(_OF_PROJECT, {"project": project})}


def delete_secret(session: Session, project: str, name: str, *, actor: str = "") -> None:
    """Forget a secret of a project; jobs that run keep it. Raises: NotFound."""
    secret = get_secret(session, project, name)
    session.execute(delete(Secret).where(Secret.id == secret.id))
    add_action(session, "secret_deleted", f"secret {name}", project=project, actor=actor, data={"name": name})


def add_job_secrets(session: Session, job_id: str, project: str, ciphertexts: Mapping[str, str]) -> None:
    """Keep the secrets that a job brings along."""
    now = database_now(session)
    session.add_all(
        Secret(project=project, job_id=job_id, name=name, ciphertext=text, created_at=now, updated_at=now)
        for name, text in sorted(ciphertexts.items())
    )
    session.flush()


def secrets_of_job(session: Session, job_id: str) -> dict[str, str]:
    """What a job's trainer gets, encrypted, by name: its project's secrets and its own, which go before."""
    query = (
        select(Secret.name, Secret.ciphertext)
        .join(Job, Job.id == job_id)
        .where(Secret.project == Job.project, or_(Secret.job_id.is_(None), Secret.job_id == job_id))
        .order_by(Secret.job_id.is_not(None))
    )
    return {row.name: row.ciphertext for row in session.execute(query)}


def rotate_secrets(session: Session, box: SecretBox) -> int:
    """Encrypt every secret, those of webhooks too, with the first key of the box; how many there are.

    Raises: Unreadable.
    """
    secrets = session.execute(select(Secret).with_for_update()).scalars().all()
    for secret in secrets:
        secret.ciphertext = box.reencrypt(secret.ciphertext)
    webhooks = session.execute(select(Webhook).with_for_update()).scalars().all()
    for webhook in webhooks:
        webhook.secret = box.reencrypt(webhook.secret)
    session.flush()
    return len(secrets) + len(webhooks)


def _of_project(session: Session, project: str, name: str) -> Secret | None:
    query = select(Secret).where(Secret.project == project, Secret.name == name, Secret.job_id.is_(None))
    return session.execute(query).scalar_one_or_none()
