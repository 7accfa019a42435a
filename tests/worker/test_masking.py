from hypothesis import given
from hypothesis import strategies as st

from worker.masking import MASK, NOTHING, Mask

values = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=8, max_size=40)


@given(st.lists(values, min_size=1, max_size=3), st.text(), st.text())
def test_no_value_is_left_wherever_it_stands(secrets: list[str], before: str, after: str):
    mask = Mask(secrets)
    for secret in secrets:
        shown = mask.text(f"{before}{secret}{after}{secret}")
        assert MASK in shown
        assert secret not in shown.replace(MASK, "")


def test_a_value_that_holds_another_is_masked_whole():
    assert Mask(["token-12", "token-1234"]).text("x token-1234 y token-12") == "x *** y ***"


def test_a_value_is_known_as_json_and_urls_write_it():
    mask = Mask(['a"b\\c d/e+'])
    for form in ('a"b\\c d/e+', 'a\\"b\\\\c d/e+', "a%22b%5Cc%20d%2Fe%2B", "a%22b%5Cc+d%2Fe%2B"):
        assert mask.text(f"<{form}>") == "<***>"


def test_all_texts_of_an_event_are_masked():
    event = {"msg": "got token-12", "list": ["token-12", 1, None], "token-12": {"deep": "token-12!"}}
    assert Mask(["token-12"]).tree(event) == {
        "msg": "got ***",
        "list": ["***", 1, None],
        "***": {"deep": "***!"},
    }


def test_without_secrets_nothing_changes():
    assert NOTHING.text("any text") == "any text"
    assert NOTHING.tree({"a": ["b"]}) == {"a": ["b"]}
