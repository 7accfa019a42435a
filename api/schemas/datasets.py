"""Data sets: what was uploaded, checked and counted."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from api.pagination import Page
from api.schemas.common import Links, Time, rfc3339
from store import tables
from store.datasets import SPLITS

KindName = Literal["sft", "dpo", "kto"]
SplitName = Literal["train", "dev", "quant"]


class LengthBin(BaseModel):
    up_to: int | None = Field(description="Longest length in this bin; null: no end")
    examples: int


class Lengths(BaseModel):
    """How long records are; the edges of the histogram are the same for all data."""

    total: int
    mean: float
    max: int
    histogram: list[LengthBin]


class SplitCounts(BaseModel):
    """What one split adds up to."""

    examples: int
    turns: int
    bytes: int
    sha256: str
    characters: Lengths = Field(description="Of all texts of a record together")


class Split(SplitCounts):
    url: str = Field(description="Where its file is")


class Dataset(BaseModel):
    """JSON lines of one kind, one file a split; immutable."""

    id: str
    name: str | None
    kind: KindName = Field(description="What they are for: sft for task finetune and quantize, dpo, kto")
    project: str
    sha256: str = Field(description="Of the content; a project has it once")
    bytes: int = Field(description="Sum over the splits")
    splits: dict[SplitName, Split]
    reference: str = Field(description="What a config says to use it")
    created_at: Time
    created_by: str
    links: Links

    @classmethod
    def of(cls, row: tables.Dataset) -> "Dataset":
        own = f"/datasets/{row.id}"
        splits = {
            split: {**row.splits[split], "url": f"{own}/files/{split}"}
            for split in SPLITS
            if split in row.splits
        }
        return cls.model_validate(
            {
                "id": row.id,
                "name": row.name,
                "kind": row.kind,
                "project": row.project,
                "sha256": row.sha256,
                "bytes": row.bytes,
                "splits": splits,
                "reference": f"dataset:{row.id}",
                "created_at": rfc3339(row.created_at),
                "created_by": row.created_by,
                "links": {"self": own, "records": f"{own}/records", "statistics": f"{own}/statistics"},
            }
        )


class DatasetPage(Page[Dataset]):
    """Data sets, newest first."""


class DatasetCheck(BaseModel):
    """What an upload would be stored as."""

    kind: KindName
    sha256: str
    bytes: int
    splits: dict[SplitName, SplitCounts]
    known: str | None = Field(description="Id of the data set that has this content already")


class Record(BaseModel):
    line: int = Field(description="Of the stored file, from 1")
    bytes: int
    record: dict[str, Any] | None = Field(description="null: it is longer than 1 MiB")


class RecordPage(BaseModel):
    """Some records in the order of the file."""

    items: list[Record]
    next_offset: int | None = Field(description="`offset` of the next page; null: there is none")
    total: int


class TokenLengths(Lengths):
    """How many tokens the records of a split have for a model."""

    model: str
    split: SplitName
    examples: int = Field(description="Of the split")
    counted: int = Field(description="Those whose tokens were counted: of very many evenly spread ones")
    template: str | None = Field(description="File of the chat template; null: raw text")
    percentiles: dict[str, int] = Field(description="Length that 50, 90, 95 and 99 percent do not exceed")
    max_length: int
    over_max_length: float = Field(ge=0, le=1, description="The share that is longer than `max_length`")
