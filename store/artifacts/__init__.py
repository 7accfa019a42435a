"""What jobs produce, kept under keys: in a folder, or in an S3 bucket."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from store.artifacts.local import LocalArtifacts
from store.artifacts.protocol import CHUNK, MANIFEST, Artifacts, FileEntry, Manifest, Stat, checked_key
from store.errors import ArtifactError

__all__ = [
    "CHUNK",
    "MANIFEST",
    "Artifacts",
    "FileEntry",
    "LocalArtifacts",
    "Manifest",
    "Stat",
    "artifacts_for",
    "checked_key",
]


def artifacts_for(url: str) -> Artifacts:
    """The artifacts behind a URL. Nothing is contacted yet.

    Raises: ArtifactError for a URL that is none of the two kinds.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return LocalArtifacts(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc and not (parts.username or parts.query or parts.fragment):
        from store.artifacts.s3 import S3Artifacts  # costs memory that a folder does not need

        return S3Artifacts.from_environment(parts.netloc, unquote(parts.path).strip("/"))
    raise ArtifactError(
        "artifacts_url: expected file:///<absolute folder> or s3://<bucket>/<prefix> (credentials come from "
        "AWS_* variables); set REGATTA_ARTIFACTS_URL"
    )
