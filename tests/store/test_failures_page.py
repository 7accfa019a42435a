from store.failures_page import FILE, page


def test_the_handbook_is_the_one_of_these_reasons() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), "run: python -m store.failures_page"
