"""Chat templates in Jinja: what is learned is exactly the answers and what ends them."""

import pytest

from trainer.config.chat_templates import JinjaTemplate
from trainer.config.problems import DataError
from trainer.config.records import SftRecord
from trainer.data.chat_jinja import JinjaEncoder
from trainer.data.sft import IGNORE, Example
from trainer.tokenizers import Tokenizer

GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for message in messages %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
MARKED = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "A: {% generation %}{{ message['content'] }}{{ eos_token }}{% endgeneration %}"
    "{% else %}U: {{ message['content'] }} {% endif %}{% endfor %}"
)
#: Leaves what stands before a bar out of earlier answers, as templates of reasoning models do.
THINKING = (
    "{% for message in messages %}"
    "{% set text = message['content'] if loop.last else message['content'].split('|')[-1] %}"
    "[{{ message['role'] }}]{{ text }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def encoder(tokenizer: Tokenizer, text: str, src_length: int = 200, max_length: int = 400) -> JinjaEncoder:
    return JinjaEncoder(tokenizer, JinjaTemplate("chat_template.jinja", text), src_length, max_length)


def record(*turns: tuple[str, str], **context: str) -> SftRecord:
    return SftRecord(tuple(src for src, _ in turns), tuple(tgt for _, tgt in turns), context)


def texts(example: Example, tokenizer: Tokenizer) -> tuple[str, str]:
    """The whole text of an example, and what is learned of it."""
    last = int(example.labels[-1])
    ids = [*example.input_ids.tolist(), *([] if last == IGNORE else [last])]
    learned = [int(label) for label in example.labels if label != IGNORE]
    decode = lambda tokens: tokenizer.decode(tokens, skip_special_tokens=False)  # noqa: E731
    return decode(ids), decode(learned)


def test_the_text_is_the_rendered_template_and_the_answer_with_its_end_is_learned(
    tokenizer: Tokenizer,
) -> None:
    example = encoder(tokenizer, GEMMA).example(record(("Who?", "The pilot.")))
    whole, learned = texts(example, tokenizer)
    assert whole == (
        "<bos><start_of_turn>user\nWho?<end_of_turn>\n<start_of_turn>model\nThe pilot.<end_of_turn>\n"
    )
    assert learned == "The pilot.<end_of_turn>\n"
    assert example.input_ids[0] == tokenizer.bos_id
    assert (example.input_ids == tokenizer.bos_id).sum() == 1


def test_every_answer_of_a_conversation_is_learned_and_nothing_else(tokenizer: Tokenizer) -> None:
    turns = ("One", "first"), ("Two", "second"), ("Three", "third")
    example = encoder(tokenizer, GEMMA).example(record(*turns))
    assert texts(example, tokenizer)[1] == "first<end_of_turn>\nsecond<end_of_turn>\nthird<end_of_turn>\n"
    assert (example.lost_turns, example.masked_turns) == (0, 0)


@pytest.mark.parametrize("template", [GEMMA, THINKING, MARKED])
def test_an_answer_that_the_question_holds_too_is_learned_only_where_it_is_the_answer(
    tokenizer: Tokenizer, template: str
) -> None:
    turns = ("Say yes. yes or model", "yes"), ("yes and again yes", "yes")
    example = encoder(tokenizer, template).example(record(*turns))
    whole, learned = texts(example, tokenizer)
    assert whole.count("yes") == 6
    assert learned.count("yes") == 2
    assert "model" not in learned
    following = [*example.input_ids.tolist()[1:], int(example.labels[-1])]
    first = next(place for place, label in enumerate(example.labels) if label != IGNORE)
    before = tokenizer.decode([int(example.input_ids[0]), *following[:first]], skip_special_tokens=False)
    assert before.count("yes") == 2


def test_spaces_that_the_template_trims_do_not_hide_an_answer(tokenizer: Tokenizer) -> None:
    example = encoder(tokenizer, GEMMA).example(record(("Who?", "  The pilot. ")))
    assert texts(example, tokenizer)[1] == "The pilot.<end_of_turn>\n"


def test_a_template_that_marks_its_answers_decides_what_is_learned(tokenizer: Tokenizer) -> None:
    example = encoder(tokenizer, MARKED).example(record(("a", "one"), ("b", "two")))
    whole, learned = texts(example, tokenizer)
    assert whole == "U: a A: one<eos>U: b A: two<eos>"
    assert learned.replace(" ", "") == "one<eos>two<eos>"


@pytest.mark.parametrize("turn", [("a\ufdd0b\ufdd1", "the answer"), ("a question", "the \ufdd0an\ufdd1swer")])
def test_the_marks_in_a_record_do_not_move_what_is_learned(
    tokenizer: Tokenizer, turn: tuple[str, str]
) -> None:
    example = encoder(tokenizer, GEMMA).example(record(turn))
    assert texts(example, tokenizer)[1] == f"{turn[1]}<end_of_turn>\n"
    with pytest.raises(DataError, match=r"U\+FDD0 or U\+FDD1"):
        encoder(tokenizer, MARKED).example(record(turn))
    with pytest.raises(DataError, match=r"U\+FDD0 or U\+FDD1"):
        encoder(tokenizer, MARKED).prompt(record(turn))


def test_a_template_that_marks_nothing_of_a_record_lets_nothing_be_learned(tokenizer: Tokenizer) -> None:
    marked = "{% generation %}.{% endgeneration %}"
    text = f"{{% for m in messages %}}{{{{ m.content }}}}{{% if learn %}}{marked}{{% endif %}}{{% endfor %}}"
    assert encoder(tokenizer, text).example(record(("a", "b"))).label_tokens == 0
    assert encoder(tokenizer, text).example(record(("a", "b"), learn="yes")).label_tokens > 0


def test_answers_that_later_turns_change_are_counted_and_not_learned(tokenizer: Tokenizer) -> None:
    example = encoder(tokenizer, THINKING).example(record(("a", "hm|one"), ("b", "hm|two")))
    whole, learned = texts(example, tokenizer)
    assert whole == "[user]a<eos>[assistant]one<eos>[user]b<eos>[assistant]hm|two<eos>"
    assert learned == "hm|two<eos>"
    assert example.masked_turns == 1


def test_a_conversation_that_is_too_long_loses_its_oldest_turns(tokenizer: Tokenizer) -> None:
    turns = ("One", "first"), ("Two", "second"), ("Three", "third")
    room = encoder(tokenizer, GEMMA).example(record(*turns[1:])).length + 1
    example = encoder(tokenizer, GEMMA, max_length=room).example(record(*turns))
    assert texts(example, tokenizer)[1] == "second<end_of_turn>\nthird<end_of_turn>\n"
    assert (example.lost_turns, example.cut) == (1, False)


def test_a_last_turn_that_is_too_long_keeps_the_end_of_its_question_and_the_start_of_its_answer(
    tokenizer: Tokenizer,
) -> None:
    long = record(("a question of many many words", "an answer of many words"))
    whole = encoder(tokenizer, GEMMA).example(long)
    answer = int((whole.labels != IGNORE).argmax()) + 1
    example = encoder(tokenizer, GEMMA, src_length=6, max_length=10).example(long)
    assert example.length + 1 == 10
    assert example.cut
    assert example.input_ids[:6].tolist() == whole.input_ids[answer - 6 : answer].tolist()
    assert example.label_tokens == 4


def test_the_prompt_of_an_answer_ends_where_the_model_begins_to_write(tokenizer: Tokenizer) -> None:
    found = encoder(tokenizer, GEMMA).prompt(record(("One", "first"), ("Two", "second")))
    text = tokenizer.decode(found, skip_special_tokens=False)
    assert text.endswith("first<end_of_turn>\n<start_of_turn>user\nTwo<end_of_turn>\n<start_of_turn>model\n")


def test_system_text_of_the_context_becomes_the_first_message(tokenizer: Tokenizer) -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ mood }}"
    example = encoder(tokenizer, template).example(record(("a", "b"), system="Be kind.", mood="!"))
    assert texts(example, tokenizer)[0].startswith("[system]Be kind.[user]a[assistant]b")


@pytest.mark.parametrize(
    ("template", "context", "reason"),
    [
        (GEMMA, {"system": "Be kind."}, "no system role"),
        ("{{ messages.nothing.at_all }}", {}, "has no attribute 'nothing'"),
        ("{% set x = messages.append(1) %}", {}, "unsafe"),
        ("{{ ''['__class__'].mro() }}", {}, "unsafe"),
        ("{{ 'a' * 10**17 }}", {}, "MemoryError"),
    ],
)
def test_a_record_that_the_template_refuses_is_named(
    tokenizer: Tokenizer, template: str, context: dict[str, str], reason: str
) -> None:
    with pytest.raises(DataError) as raised:
        encoder(tokenizer, template).example(record(("a", "b"), **context))
    assert "a record: the chat template chat_template.jinja refuses it" in str(raised.value)
    assert reason in str(raised.value)


def test_the_newline_at_the_end_of_a_template_file_is_no_text(tokenizer: Tokenizer) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}\n"
    assert texts(encoder(tokenizer, template).example(record(("a", "b"))), tokenizer)[0] == "ab"
