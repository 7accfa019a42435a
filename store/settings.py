"""Settings of the service, read from environment variables named `REGATTA_<FIELD>`."""

import json
import os
import re
import socket
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, quote, unquote, urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from store.broker import socket_path
from store.retry_policy import ExclusionPolicy, RetryPolicy

Seconds = Annotated[float, Field(gt=0)]
Roots = Annotated[tuple[Path, ...], NoDecode]
Names = Annotated[tuple[str, ...], NoDecode]
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode]

_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")

SCHEMES = {
    "database_url": ("sqlite", "postgresql"),
    "broker_url": ("redis", "rediss", "unix"),
    "artifacts_url": ("file", "s3"),
}
"""What each URL may begin with; a database's may name its driver too (`postgresql+psycopg`)."""

UNSHOWN = frozenset({*SCHEMES, "secret_key"})
"""Settings that may hold a password or a key: no message shows what was given."""


class Settings(BaseSettings):
    """Everything an operator can set. Paths are absolute once read."""

    model_config = SettingsConfigDict(
        env_prefix="REGATTA_",
        frozen=True,
        validate_default=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    data_dir: Path = Path("regatta-data")
    """Folder of everything that has no place of its own."""
    database_url: str = ""
    """SQLAlchemy URL; default: SQLite in the data directory."""
    broker_url: str = ""
    """redis://… or unix://…; default: the embedded server's socket."""
    artifacts_url: str = ""
    """Where results are kept (file://… or s3://bucket/prefix); default: in the data directory."""
    work_dir: Path = Path()
    """Job workspaces of this host; default: in the data directory."""
    model_roots: Roots = ()
    """Folders that models may be read from (JSON list or a:b)."""
    data_roots: Roots = ()
    """Folders that data sets may be read from (JSON list or a:b)."""
    allow_hub: bool = False
    """Whether trainers may fetch models from the Hugging Face hub."""

    secret_key: Annotated[tuple[str, ...], NoDecode, Field(repr=False)] = ()
    """Keys of stored secrets (JSON list or a:b), the newest first; default: a file in the data directory."""
    api_keys_required: bool = False
    """Whether every request needs a key; without, the API listens on loopback only."""

    api_host: str = "127.0.0.1"
    """Address that the API listens on."""
    api_port: int = Field(default=8000, ge=0, le=65535)
    """Port that the API listens on; 0: any free one."""
    allowed_hosts: Names = ()
    """Host names that the API answers for (JSON list or a:b)."""
    max_body_bytes: int = Field(default=1 << 20, gt=0)
    """Largest request body of JSON routes."""
    max_dataset_bytes: int = Field(default=16 << 30, gt=0)
    """Largest uploaded data set, unpacked."""
    body_timeout_s: Seconds = 30.0
    """Time in which the body of a JSON route has to arrive."""
    requests_per_s: float = Field(default=0, ge=0)
    """Requests that one client may send each second, on and on; 0: no limit."""
    requests_burst: int = Field(default=100, ge=1)
    """Requests that a client may send at once before that limit holds."""
    max_streams_per_client: int = Field(default=500, ge=1)
    """Event streams that one client may have open at a time."""
    stream_ping_s: Seconds = 15.0
    """Time between comment pings on open event streams."""

    log_format: Literal["text", "json"] = "text"
    """How API, worker, scheduler and runners write their own logs."""

    host_name: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$")
    """Name of this host; default: hostname."""
    host_address: str = ""
    """Name or IPv4 address by which other hosts reach this one; default: that which the database sees."""
    gang_ports: str = Field(default="", pattern=r"^([0-9]{1,5}:[0-9]{1,5})?$")
    """Ports, first:last, on which trainers of several hosts meet; default: any free one."""
    gang_timeout_s: Seconds = 1800.0
    """How long the hosts of a job wait for each other before it trains."""
    devices: str = Field(default="cpu:1", pattern=r"^(cpu|gpu)(:[0-9]+)?$")
    """Devices of this host: cpu:N (N processes), gpu:N, gpu (all found)."""
    lease_ttl_s: Seconds = 60.0
    """How long an attempt may stay silent before it may be lost."""
    heartbeat_s: Seconds = 10.0
    """Time between two renewals of a lease or a host."""
    lease_grace_s: Seconds = 15.0
    """Extra time before an attempt whose lease ran out is reaped."""
    fault_limit: int = Field(default=RetryPolicy.fault_limit, ge=1)
    """Lost hosts and the like in a row, without a checkpoint, that fail a job."""
    retry_backoff_s: Seconds = RetryPolicy.backoff_s
    """Pause after a first failed attempt; each further one doubles it."""
    longest_retry_backoff_s: Seconds = RetryPolicy.longest_backoff_s
    """Longest pause between two attempts."""
    host_failure_limit: int = Field(default=ExclusionPolicy.limit, ge=1)
    """Attempts that fail on a host, with no success in between, that exclude it."""
    host_failure_window_s: Seconds = ExclusionPolicy.window_s
    """Time for which such a failure counts."""
    exclusion_s: float = Field(default=ExclusionPolicy.duration_s, ge=0)
    """Time for which a host is excluded; 0: until it is uncordoned."""
    outage_s: Seconds = 600.0
    """How long a trainer goes on while the database does not answer."""
    stop_grace_s: Seconds = 60.0
    """Time a trainer gets between SIGTERM and SIGKILL."""
    preemption: bool = False
    """Whether jobs of lower priority are stopped, with a checkpoint, for one that finds no devices."""
    preemption_margin: int = Field(default=1, ge=1)
    """So much lower has their priority to be."""
    start_timeout_s: Seconds = 60.0
    """Time a host gets to claim a job that it was told of."""
    republish_s: Seconds = 30.0
    """Time after which an unclaimed placement is announced again."""
    poll_s: Seconds = 1.0
    """Longest sleep of loops that wait for a hint."""
    webhook_allowed_networks: Networks = ()
    """Networks beside the public ones that webhooks may reach, also by http (JSON list, or a,b)."""
    log_flush_s: Seconds = 5.0
    """Time between two log segments written to the artifacts."""
    log_stream_entries: int = Field(default=1000, gt=0)
    """Entries kept in the live log stream of a job."""

    @field_validator("model_roots", "data_roots", "allowed_hosts", "secret_key", mode="before")
    @classmethod
    def _split_list(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return json.loads(value)
        return [part for part in value.split(os.pathsep) if part]

    @field_validator("webhook_allowed_networks", mode="before")
    @classmethod
    def _split_networks(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return json.loads(value)
        return [part.strip() for part in value.split(",") if part.strip()]

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: dict[str, Any]) -> dict[str, Any]:
        data_dir = (
            Path(values.get("data_dir") or cls.model_fields["data_dir"].default).expanduser().absolute()
        )
        defaults = {
            "database_url": f"sqlite:///{data_dir}/regatta.db",
            "broker_url": f"unix://{quote(str(socket_path(data_dir)))}?db=0",
            "artifacts_url": (data_dir / "artifacts").as_uri(),
            "work_dir": data_dir / "work",
            "host_name": socket.gethostname(),
        }
        return {**values, "data_dir": data_dir} | {k: v for k, v in defaults.items() if not values.get(k)}

    @field_validator(*SCHEMES, mode="after")
    @classmethod
    def _known_scheme(cls, value: str, info: ValidationInfo) -> str:
        """The message leaves the rest of the URL out: there may be a password in it."""
        known = SCHEMES[str(info.field_name)]
        scheme, separator, rest = value.partition("://")
        if not separator:
            raise ValueError(f"not a URL, expected one that begins with {_words(known)}")
        if scheme.partition("+")[0] not in known:
            raise ValueError(f"a URL of {scheme}://, expected {_words(known)}")
        host = rest.partition("/")[0].rpartition("@")[2]
        if re.search(r":[^]:]*[^]:0-9][^]:]*$", host):
            raise ValueError("a URL whose port is not a number; in a password / is written %2F")
        return value

    @field_validator("secret_key", mode="after")
    @classmethod
    def _keys(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for key in value:
            if not _KEY.fullmatch(key):
                raise ValueError(
                    "a key that is not 32 bytes in URL-safe base64; see `regatta secrets new-key`"
                )
        return value

    @field_validator("data_dir", "work_dir", mode="after")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("model_roots", "data_roots", mode="after")
    @classmethod
    def _absolute_roots(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(path.expanduser().absolute() for path in value)

    @property
    def host_silence_s(self) -> float:
        """How long a host may be silent before it counts as away: three heartbeats."""
        return 3 * self.heartbeat_s

    @property
    def retry_policy(self) -> RetryPolicy:
        """When a failed attempt is repeated."""
        exclusion = ExclusionPolicy(self.host_failure_limit, self.host_failure_window_s, self.exclusion_s)
        return RetryPolicy(self.fault_limit, self.retry_backoff_s, self.longest_retry_backoff_s, exclusion)

    @property
    def celery_broker_url(self) -> str:
        """The broker's URL as Celery spells it (a unix socket is `redis+socket://` there)."""
        parts = urlsplit(self.broker_url)
        if parts.scheme != "unix":
            return self.broker_url
        database = parse_qs(parts.query).get("db", ["0"])[0]
        return f"redis+socket://{quote(unquote(parts.path))}?virtual_host={database}"


def _words(schemes: Sequence[str]) -> str:
    return " or ".join(f"{scheme}://" for scheme in schemes)


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The settings of this process, read once."""
    return Settings()
