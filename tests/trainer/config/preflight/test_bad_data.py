"""What is wrong with a data set is said with file, line and remedy, before a device is taken."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.config import FinetuneConfig
from trainer.config.preflight import Roots, check_job

Config = Callable[..., FinetuneConfig]
GOOD = b'{"src": "q", "tgt": "a"}\n'


@pytest.mark.parametrize(
    ("line", "msg"),
    [
        (b'{"src": "q"}', 'line 3: tgt is missing, found "src"'),
        (
            b'{"src": ["q"], "tgt": ["a", "b"]}',
            "line 3: src has 1 turns and tgt 2, expected the same number",
        ),
        (b'{"src": "q", "tgt": ["a", "b"]}', "line 3: src has 1 turns and tgt 2, expected the same number"),
        (b'{"src": "q", "tgt": 7}', "line 3: tgt: expected a text or a list of texts, got 7"),
        (b'{"src": ["q", null], "tgt": ["a", "b"]}', "line 3: src[1]: expected a text, got null"),
        (b'{"src": "q", "tgt": ""}', "line 3: tgt is blank, expected a text to learn"),
        (b'{"src": "q", "tgt": "a", "tgt": "b"}', "line 3: broken JSON: the key 'tgt' appears twice"),
        (b'{"src": "q", "tgt": "\xff"}', "line 3: broken JSON: byte 21 is not UTF-8 text"),
        (b'{"src": "q", "tgt": NaN}', "line 3: broken JSON: NaN is not a JSON number"),
        (b"[]", "line 3: got [], expected an object with src and tgt"),
    ],
)
def test_a_line_that_cannot_be_used_is_told_exactly(
    config: Config, roots: Roots, data: Path, line: bytes, msg: str
) -> None:
    (data / "train.json").write_bytes(GOOD + GOOD + line + b"\n" + GOOD)
    summary, problem = check_job(config(), roots).problems
    assert "1 of 4 lines of train cannot be used" in summary.msg
    assert problem.loc == ("dataset_name_or_path", "train.json", 3)
    assert problem.msg == msg


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xef\xbb\xbf" + GOOD, id="byte order mark"),
        pytest.param(GOOD.replace(b"\n", b"\r\n") * 3, id="CRLF"),
        pytest.param(GOOD.rstrip(), id="no newline at the end"),
        pytest.param(b"\n \n" + GOOD, id="blank lines"),
        pytest.param(
            json.dumps({"src": "q", "tgt": "long " * 250_000}).encode() + b"\n", id="a line of more than 1 MB"
        ),
        pytest.param('{"src": "où?", "tgt": "港口"}\n'.encode(), id="text beyond ASCII"),
        pytest.param(b'{"src": "", "tgt": "a"}\n', id="an empty source"),
    ],
)
def test_what_can_be_read_is_accepted(config: Config, roots: Roots, data: Path, content: bytes) -> None:
    (data / "train.json").write_bytes(content)
    assert check_job(config(), roots).problems == ()


@pytest.mark.parametrize("flags", [{}, {"zero_padding": True}, {"lazy": True, "max_steps": 3}])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_a_job_that_would_train_on_nothing_is_refused(
    config: Config, roots: Roots, data: Path, flags: dict[str, object], content: bytes
) -> None:
    (data / "train.json").write_bytes(content)
    (problem,) = check_job(config(**flags), roots).problems
    assert problem.msg == "train has no record, expected at least one"
