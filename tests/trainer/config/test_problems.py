import pytest

from trainer.config import ConfigError, DataError, Problem, RegattaError, TrainingError


def test_a_problem_reads_as_one_sentence_with_its_remedy() -> None:
    problem = Problem(("learning_rate",), "got -1.0, expected a number >= 0", "Use for example 3e-05.")
    assert str(problem) == "learning_rate: got -1.0, expected a number >= 0. Use for example 3e-05."


def test_a_problem_without_remedy_or_place_still_ends_with_a_period() -> None:
    assert str(Problem((), "nothing to do")) == "nothing to do."


def test_a_problem_names_file_and_line() -> None:
    problem = Problem(("dataset_name_or_path", "train.json", 7), "line 7: broken JSON")
    assert str(problem) == "dataset_name_or_path/train.json/7: line 7: broken JSON."
    assert problem.as_dict() == {
        "loc": ["dataset_name_or_path", "train.json", 7],
        "msg": "line 7: broken JSON",
        "hint": "",
    }


def test_an_error_says_each_of_its_problems_on_a_line() -> None:
    error = ConfigError([Problem(("a",), "wrong"), Problem(("b",), "wrong too", "Change b.")])
    assert str(error) == "a: wrong.\nb: wrong too. Change b."


def test_an_error_may_be_one_sentence() -> None:
    assert str(DataError("The disk is full.")) == "The disk is full."


@pytest.mark.parametrize(("error", "code"), [(ConfigError, 2), (DataError, 3), (TrainingError, 1)])
def test_each_kind_of_error_has_its_exit_code(error: type[RegattaError], code: int) -> None:
    assert error("x").exit_code == code
    assert issubclass(error, RegattaError)
