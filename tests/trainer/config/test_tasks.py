from trainer.config import AVAILABLE_TASKS, TASKS, task_problem


def test_finetune_can_run() -> None:
    assert "finetune" in AVAILABLE_TASKS
    assert task_problem("finetune") is None


def test_a_known_task_that_cannot_run_says_which_can() -> None:
    problem = task_problem("export")
    assert problem is not None
    assert problem.msg == "task export is not available in this version"
    assert problem.hint == "Available: finetune, dpo, kto, quantize, merge, evaluate."


def test_an_unknown_task_is_told_the_nearest_one() -> None:
    for word, nearest in (("fintune", "finetune"), ("sft", "finetune"), ("DPO", "dpo"), ("gptq", "quantize")):
        problem = task_problem(word)
        assert problem is not None
        assert problem.hint == f"Did you mean {nearest}?"
        assert ", ".join(TASKS) in problem.msg
