import pytest

from trainer.config import strict_json


def test_json_is_parsed() -> None:
    assert strict_json.loads(b'{"a": [1, 2.5, null, true, "\xc3\xa9"]}') == {"a": [1, 2.5, None, True, "é"]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("NaN", "NaN is not a JSON number"),
        ('{"a": [-Infinity]}', "-Infinity is not a JSON number"),
        ("1e999", "the number 1e999 is too large"),
        ('{"a": {"b": 1, "b": 1}}', "the key 'b' appears twice"),
        ("{", "(column 2)"),
        ("1 2", "Extra data (column 3)"),
        ('{\n"a" 1}', "(line 2, column 5)"),
        (b"\xff", "byte 0 is not UTF-8 text"),
        ("[" * 50_000, "it is nested too deeply"),
        ("1" * 5000, "a number has too many digits"),
    ],
)
def test_what_the_standard_does_not_have_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(strict_json.NotJsonError) as caught:
        strict_json.loads(text)
    assert reason in str(caught.value)
