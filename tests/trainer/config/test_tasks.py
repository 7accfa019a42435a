from trainer.config import AVAILABLE_TASKS, TASKS, task_problem


def test_every_task_can_run() -> None:
    assert set(AVAILABLE_TASKS) == set(TASKS)
    assert [task_problem(task) for task in TASKS] == [None] * len(TASKS)


def test_an_unknown_task_is_told_the_nearest_one() -> None:
    for word, nearest in (("fintune", "finetune"), ("sft", "finetune"), ("DPO", "dpo"), ("gptq", "quantize")):
        problem = task_problem(word)
        assert problem is not None
        assert problem.hint == f"Did you mean {nearest}?"
        assert ", ".join(TASKS) in problem.msg
