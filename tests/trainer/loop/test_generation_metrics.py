import pytest

from trainer.loop.generation_metrics import generation_metrics


def test_equal_texts_have_the_highest_figures() -> None:
    texts = ["The tug lies at berth three.", "港口在早晨醒来。"]
    found = generation_metrics(texts, texts)
    assert found == pytest.approx({"rouge1": 1.0, "rouge2": 1.0, "rougel": 1.0, "bleu4": 1.0})


def test_texts_without_a_common_word_have_the_lowest() -> None:
    found = generation_metrics(["one two three four"], ["five six seven eight"])
    assert found["rouge1"] == found["rouge2"] == found["rougel"] == 0.0
    assert found["bleu4"] < 0.1


def test_figures_are_those_of_the_definitions() -> None:
    # Words in common: the, cat, on, mat of 6 and 5; pairs: "the cat" of 5 and 4; longest: the cat on mat.
    found = generation_metrics(["the cat sat on the mat"], ["the cat is on mat"])
    assert found["rouge1"] == pytest.approx(2 * (4 / 6) * (4 / 5) / (4 / 6 + 4 / 5))
    assert found["rouge2"] == pytest.approx(2 * (1 / 5) * (1 / 4) / (1 / 5 + 1 / 4))
    assert found["rougel"] == pytest.approx(2 * (4 / 6) * (4 / 5) / (4 / 6 + 4 / 5))


def test_bleu4_is_that_of_the_whole_set() -> None:
    # 1- to 4-grams: 5 of 6, 3 of 5, 2 of 4, 1 of 3; the generated text is not the shorter one.
    found = generation_metrics(["the cat sat on a mat"], ["the cat sat on mat"])
    assert found["bleu4"] == pytest.approx((5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)


def test_case_and_empty_answers_are_no_obstacle() -> None:
    assert generation_metrics(["THE CAT"], ["the cat"])["rouge1"] == 1.0
    assert generation_metrics(["", ""], ["a b", "c"])["rouge1"] == 0.0
