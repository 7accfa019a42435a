"""Encoded examples that are kept for the next run."""

from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import pytest

from trainer.config.chat_templates import JinjaTemplate
from trainer.config.records import SftRecord
from trainer.data import kept_examples
from trainer.data.chat_jinja import JinjaEncoder
from trainer.data.encoding import Encoder
from trainer.data.kept_examples import encoded
from trainer.data.sft import Example, PlainEncoder
from trainer.tokenizers import Tokenizer

RECORDS = (
    SftRecord(
        ("Where is it?", "And now?"), ("At the quay.", "A long way out at sea, and farther still."), {}
    ),
    SftRecord(("a",), ("",), {"system": "Be short."}),
    SftRecord(("a source that leaves no room for any answer at all",), ("none",), {}),
)
TURNS = "{% for message in messages %}{{ message.content }}{% endfor %}"


class Counting:
    """An encoder that counts what it encodes."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._encoder, name)

    def example(self, record: SftRecord) -> Example:
        self.count += 1
        return self._encoder.example(record)


@pytest.fixture(autouse=True)
def _keep_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_examples, "WORTH_KEEPING", 0)


@pytest.fixture
def encoder(tokenizer: Tokenizer) -> PlainEncoder:
    return PlainEncoder(tokenizer, 16, 24)


def work(folder: Path, encoder: Encoder, records: Sequence[SftRecord] = RECORDS) -> tuple[list, int]:
    """The examples in a form to compare, and how many had to be encoded."""
    counting = Counting(encoder)
    found = encoded(records, counting, folder)  # pyright: ignore[reportArgumentType]
    return [_content(example) for example in found], counting.count


def _content(example: Example) -> tuple:
    ids, labels = example.input_ids, example.labels
    facts = example.cut, example.lost_turns, example.masked_turns
    return ids.tolist(), labels.tolist(), ids.dtype, labels.dtype, facts


def test_the_next_run_gets_the_same_without_encoding(tmp_path: Path, encoder: PlainEncoder) -> None:
    alone = [_content(encoder.example(record)) for record in RECORDS]
    assert any(facts[0] or facts[1] for *_, facts in alone)
    assert work(tmp_path, encoder) == (alone, 3)
    assert work(tmp_path, encoder) == (alone, 0)


def test_what_an_example_depends_on_makes_another_file(tmp_path: Path, encoder: PlainEncoder) -> None:
    work(tmp_path, encoder)
    tokenizer = encoder.tokenizer
    assert work(tmp_path, PlainEncoder(tokenizer, 15, 24))[1] == 3
    assert work(tmp_path, PlainEncoder(tokenizer, 16, 23))[1] == 3
    assert work(tmp_path, JinjaEncoder(tokenizer, JinjaTemplate("a file", TURNS), 16, 24))[1] == 3
    assert work(tmp_path, encoder, RECORDS[::-1])[1] == 3
    assert work(tmp_path, encoder, [*RECORDS[:2], SftRecord(("a source",), ("none",), {})])[1] == 3
    tokenizer.use_chat_template("chat_template.jinja", TURNS)
    assert work(tmp_path, PlainEncoder(tokenizer, 16, 24))[1] == 3


def test_a_template_that_asks_for_the_time_is_never_kept(tmp_path: Path, tokenizer: Tokenizer) -> None:
    unsteady = JinjaEncoder(tokenizer, JinjaTemplate("a file", "{{ strftime_now('%d') }}" + TURNS), 64, 64)
    assert [work(tmp_path, unsteady)[1] for _ in range(2)] == [3, 3]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", [-1, 60, 0], ids=["a number", "the header", "the header's length"])
def test_a_changed_file_is_as_good_as_none(tmp_path: Path, encoder: PlainEncoder, place: int) -> None:
    first, _ = work(tmp_path, encoder)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert work(tmp_path, encoder) == (first, 3)
    assert work(tmp_path, encoder) == (first, 0)


def test_the_oldest_go_when_there_are_too_many(
    tmp_path: Path, encoder: PlainEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(tmp_path, encoder)
    size = next(tmp_path.iterdir()).stat().st_size
    monkeypatch.setattr(kept_examples, "MAX_BYTES", int(2.5 * size))
    for order in (RECORDS[::-1], RECORDS[1:] + RECORDS[:1]):
        work(tmp_path, encoder, order)
    assert len(list(tmp_path.iterdir())) == 2
    assert work(tmp_path, encoder)[1] == 3


def test_runs_that_share_a_folder_do_not_disturb_each_other(tmp_path: Path, encoder: PlainEncoder) -> None:
    found: list[object] = []
    threads = [Thread(target=lambda: found.append(work(tmp_path, encoder)[0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert found == [[_content(encoder.example(record)) for record in RECORDS]] * 4
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, encoder: PlainEncoder, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    assert work(tmp_path / "file", encoder)[1] == 3
    assert "not kept" in caplog.text
