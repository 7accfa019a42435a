"""PaddleNLP's chat_template.json: pieces, what is learned of them, and what gives way."""

import pytest

from trainer.config.chat_templates import PaddleTemplate
from trainer.config.problems import DataError
from trainer.config.records import SftRecord
from trainer.data.chat_paddlenlp import PaddleEncoder
from trainer.data.sft import IGNORE, Example
from trainer.tokenizers import Tokenizer

TEMPLATE = PaddleTemplate(
    origin="chat_template.json",
    system="<bos>{{ system | default('You help.') }}",
    user=" U{{ index }}{% if is_last %}!{% endif %}: {{ user }} A:",
    bot=" {{ bot }}<eos>",
    query=" Q: {{ query }} A:",
)


def encoder(tokenizer: Tokenizer, src_length: int = 200, max_length: int = 400) -> PaddleEncoder:
    return PaddleEncoder(tokenizer, TEMPLATE, src_length, max_length)


def record(*turns: tuple[str, str], **context: str) -> SftRecord:
    return SftRecord(tuple(src for src, _ in turns), tuple(tgt for _, tgt in turns), context)


def pieces(tokenizer: Tokenizer, *texts: str) -> list[list[int]]:
    return [tokenizer.encode(text, add_special_tokens=False, allow_special=True) for text in texts]


def ids(example: Example) -> list[int]:
    last = int(example.labels[-1])
    return [*example.input_ids.tolist(), *([] if last == IGNORE else [last])]


def learned(example: Example) -> list[int]:
    return [int(label) for label in example.labels if label != IGNORE]


def test_pieces_are_rendered_and_encoded_one_by_one_and_answers_are_learned(tokenizer: Tokenizer) -> None:
    example = encoder(tokenizer).example(record(("one", "first"), ("two", "second")))
    system, user0, bot0, user1, bot1 = pieces(
        tokenizer, "<bos>You help.", " U0: one A:", " first<eos>", " U1!: two A:", " second<eos>"
    )
    assert ids(example) == [*system, *user0, *bot0, *user1, *bot1]
    assert learned(example) == [*bot0, *bot1]
    assert tokenizer.eos_id == bot1[-1]


def test_the_context_reaches_the_template(tokenizer: Tokenizer) -> None:
    example = encoder(tokenizer).example(record(("one", "first"), system="Be kind."))
    assert "Be kind." in tokenizer.decode(ids(example))


def test_turns_are_kept_from_the_last_one_backwards_while_they_fit_with_the_system_text(
    tokenizer: Tokenizer,
) -> None:
    turns = ("one", "first"), ("two", "second"), ("three", "third")
    system, *rest = pieces(
        tokenizer, "<bos>You help.", " U1: two A:", " second<eos>", " U2!: three A:", " third<eos>"
    )
    room = len(system) + sum(map(len, rest))
    example = encoder(tokenizer, max_length=room).example(record(*turns))
    assert ids(example) == [*system, *(token for piece in rest for token in piece)]
    assert (example.lost_turns, example.cut) == (1, False)
    tighter = encoder(tokenizer, max_length=room - 1).example(record(*turns))
    assert ids(tighter) == [*system, *rest[2], *rest[3]]


def test_a_last_turn_that_does_not_fit_keeps_the_first_tokens_of_question_and_answer(
    tokenizer: Tokenizer,
) -> None:
    turn = ("a question of many many words", "an answer of many words")
    system, user, bot = pieces(tokenizer, "<bos>You help.", f" U0!: {turn[0]} A:", f" {turn[1]}<eos>")
    src_length = len(system) + 4
    example = encoder(tokenizer, src_length, src_length + 3).example(record(turn))
    assert ids(example) == [*system, *user[:4], *bot[:3]]
    assert learned(example) == bot[:3]
    assert example.cut


def test_an_answer_that_fits_behind_a_cut_question_is_not_called_cut(tokenizer: Tokenizer) -> None:
    turn = ("a question of many many words", "an answer")
    system, user, bot = pieces(tokenizer, "<bos>You help.", f" U0!: {turn[0]} A:", f" {turn[1]}<eos>")
    src_length = len(system) + 4
    example = encoder(tokenizer, src_length, src_length + len(bot)).example(record(turn))
    assert ids(example) == [*system, *user[:4], *bot]
    assert not example.cut


def test_a_system_text_that_fills_max_length_is_an_error_that_names_the_record(tokenizer: Tokenizer) -> None:
    length = len(pieces(tokenizer, "<bos>You help.")[0])
    with pytest.raises(DataError, match=f"a record: the system text has {length} tokens"):
        encoder(tokenizer, max_length=length).example(record(("a", "b")))
    encoder(tokenizer, max_length=length + 1).example(record(("a", "b")))


def test_the_prompt_is_system_text_earlier_turns_and_the_query(tokenizer: Tokenizer) -> None:
    turns = record(("one", "first"), ("two", "second"))
    expected = pieces(tokenizer, "<bos>You help.", " U0: one A:", " first<eos>", " Q: two A:")
    assert encoder(tokenizer).prompt(turns) == [token for piece in expected for token in piece]
    short = encoder(tokenizer, src_length=len(expected[0]) + len(expected[3])).prompt(turns)
    assert short == [*expected[0], *expected[3]]


def test_a_piece_that_cannot_be_rendered_is_an_error_that_names_the_record(tokenizer: Tokenizer) -> None:
    template = PaddleTemplate("chat_template.json", None, "{{ user.no.such }}", "{{ bot }}", "{{ query }}")
    with pytest.raises(DataError, match=r"a record: the chat template chat_template.json refuses it"):
        PaddleEncoder(tokenizer, template, 10, 20).example(record(("a", "b")))
