"""Evaluation by generation: the model writes the answers of the dev split, and they are compared."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training import PAIRS, Recorder, write_records
from trainer import load_model, load_tokenizer
from trainer.config import FinetuneConfig
from trainer.loop.generation_metrics import generation_metrics
from trainer.run import run_task
from trainer.tools.generate import generate

MakeConfig = Callable[..., FinetuneConfig]
ANSWERED = [(src, "The tug waits at berth three.") for src, _ in PAIRS[:3]]
NAMES = {"eval_rouge1", "eval_rouge2", "eval_rougel", "eval_bleu4"}


def run(config: FinetuneConfig) -> tuple[dict[str, Any], Recorder]:
    recorder = Recorder()
    return run_task("finetune", config, recorder.writer, lambda: False), recorder


@pytest.fixture
def learnable(tmp_path: Path) -> Path:
    """One answer to every question, in training and in evaluation."""
    for split in ("train", "dev"):
        write_records(tmp_path / "data" / f"{split}.json", ANSWERED)
    return tmp_path / "data"


def test_a_model_that_has_learned_its_answers_writes_them(make_config: MakeConfig, learnable: Path) -> None:
    config = make_config(
        dataset_name_or_path=str(learnable),
        num_train_epochs=40,
        learning_rate=1e-2,
        max_length=80,
        evaluation_strategy="steps",
        eval_steps=20,
        save_steps=20,
        save_total_limit=1,
        logging_steps=60,
        eval_with_do_generation=True,
        save_generation_output=True,
        load_best_model_at_end=True,
        metric_for_best_model="rougel",
    )
    result, recorder = run(config)
    evaluations = recorder.of("eval")
    assert all(evaluation.keys() >= NAMES for evaluation in evaluations)
    assert result["metrics"]["eval_rougel"] == result["metrics"]["best_metric"] > 0.9
    assert result["metrics"]["best_metric"] == max(entry["eval_rougel"] for entry in evaluations)
    output = Path(config.output_dir)
    stored = json.loads((output / "all_results.json").read_text())
    assert NAMES | {"eval_loss", "eval_accuracy", "eval_ppl"} <= stored.keys()
    lines = [json.loads(line) for line in (output / "generated_output.json").read_text().splitlines()]
    assert [(line["src"], line["tgt"]) for line in lines] == ANSWERED


def test_the_figures_are_those_of_what_generate_writes(
    make_config: MakeConfig, tiny_gemma: Path, small_data: Path
) -> None:
    result, _ = run(
        make_config(do_train=False, do_eval=True, eval_with_do_generation=True, save_generation_output=True)
    )
    prompts, expected = [src for src, _ in PAIRS[14:]], [tgt for _, tgt in PAIRS[14:]]
    tokenizer = load_tokenizer(tiny_gemma)
    room = 128 - max(len(tokenizer.encode(prompt)) for prompt in prompts)
    texts = generate(load_model(tiny_gemma), tokenizer, prompts, max_new_tokens=room)
    lines = (Path(result["path"]) / "generated_output.json").read_text().splitlines()
    assert [json.loads(line)["output"] for line in lines] == texts
    for name, value in generation_metrics(texts, expected).items():
        assert result["metrics"][f"eval_{name}"] == pytest.approx(value)


def test_drawn_answers_are_the_same_in_every_run_with_one_seed(make_config: MakeConfig) -> None:
    def answers(output_dir: str, **changes: Any) -> str:
        config = make_config(
            output_dir=output_dir,
            do_train=False,
            do_eval=True,
            eval_with_do_generation=True,
            save_generation_output=True,
            top_k=0,
            top_p=0.9,
            **changes,
        )
        return (Path(run(config)[0]["path"]) / "generated_output.json").read_text()

    assert answers("one") == answers("two") != answers("three", seed=8)
    assert answers("one") == answers("alone", per_device_eval_batch_size=1)


def test_generation_goes_with_a_chat_template_and_with_packing(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text(
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
        "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    result, _ = run(
        make_config(
            do_train=False,
            do_eval=True,
            eval_with_do_generation=True,
            chat_template=str(template),
            zero_padding=True,
        )
    )
    assert result["metrics"].keys() >= NAMES
