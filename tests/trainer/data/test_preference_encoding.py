"""Records of preference training as ids: raw text, chat templates, and what becomes of long ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer import load_tokenizer
from trainer.config import read_config
from trainer.config.preference_records import PreferenceRecord
from trainer.config.problems import DataError
from trainer.config.schema import PreferenceConfig
from trainer.data.preference_dataset import encode_preference_split, preference_warnings
from trainer.data.preference_encoding import (
    PreferenceEncoder,
    RawText,
    build_preference_encoder,
    preference_ending_warning,
    shared_room,
)
from trainer.tokenizers import Tokenizer

GEMMA = """{{ bos_token }}{% for message in messages %}<start_of_turn>\
{{ 'model' if message.role == 'assistant' else message.role }}
{{ message.content }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
PADDLE = {
    "system": "<bos>{{system}}|",
    "conversation": ["[{{index}}]U:{{user}}|", "M:{{bot}}<eos>"],
    "query": "U:{{query}}|",
}
TALK = PreferenceRecord(("one", "two", "three"), ("first", "second"), ("good answer", "bad"))


def pair(prompt: str, chosen: str, rejected: str) -> PreferenceRecord:
    return PreferenceRecord((prompt,), (), (chosen, rejected))


def judged(prompt: str, response: str) -> PreferenceRecord:
    return PreferenceRecord((prompt,), (), (response,), desirable=True)


def raw(tokenizer: Tokenizer, max_seq_len: int = 1000, max_prompt_len: int = 500) -> PreferenceEncoder:
    return PreferenceEncoder(RawText(tokenizer), max_seq_len, max_prompt_len)


def plain(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


Build = Callable[..., tuple[PreferenceEncoder, Tokenizer]]


@pytest.fixture
def build(tiny_gemma: Path, tmp_path: Path) -> Build:
    """The encoder of a config with a chat template written to a file."""

    def make(template: str | dict[str, Any] | None, **arguments: Any) -> tuple[PreferenceEncoder, Tokenizer]:
        if template is not None:
            as_json = isinstance(template, dict)
            path = tmp_path / ("chat_template.json" if as_json else "chat_template.jinja")
            path.write_text(json.dumps(template) if as_json else str(template))
            arguments["chat_template"] = str(path)
        given = {"model_name_or_path": str(tiny_gemma), "output_dir": "out", "do_train": True, "max_steps": 1}
        config = read_config("dpo", {**given, "save_steps": 1, **arguments}).config
        assert isinstance(config, PreferenceConfig)
        tokenizer = load_tokenizer(tiny_gemma)
        return build_preference_encoder(config, tokenizer), tokenizer

    return make


def test_raw_text_has_a_bos_before_every_turn_of_the_user_and_an_eos_behind_every_answer(
    tokenizer: Tokenizer,
) -> None:
    encoded = raw(tokenizer).encoded(TALK)
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    expected = [bos, *plain(tokenizer, "one"), *plain(tokenizer, "first"), eos]
    expected += [bos, *plain(tokenizer, "two"), *plain(tokenizer, "second"), eos]
    expected += [bos, *plain(tokenizer, "three")]
    assert encoded.prompt.tolist() == expected
    chosen, rejected = (response.tolist() for response in encoded.responses)
    assert chosen == [*plain(tokenizer, "good answer"), eos]
    assert rejected == [*plain(tokenizer, "bad"), eos]


def test_the_example_holds_the_prompt_once_and_each_response_behind_its_last_token(
    tokenizer: Tokenizer,
) -> None:
    encoder = raw(tokenizer)
    encoded = encoder.encoded(TALK)
    example = encoder.example(encoded)
    assert example.prompt.tolist() == encoded.prompt[:-1].tolist()
    for response, ids in zip(example.responses, encoded.responses, strict=True):
        assert response.input_ids.tolist() == [encoded.prompt[-1], *ids[:-1]]
        assert response.labels.tolist() == ids.tolist()
        assert not response.cut
    assert example.length == len(encoded.prompt) - 1 + sum(map(len, encoded.responses))
    assert (example.lost_turns, example.prompt_cut, example.desirable, example.mismatched) == (
        0,
        0,
        None,
        None,
    )


def test_without_a_named_template_the_tokenizers_own_is_not_used(
    build: Build, tiny_gemma: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(tiny_gemma, tmp_path / "model"))
    (model / "chat_template.jinja").write_text(GEMMA)
    paths = {"model_name_or_path": str(model)}
    assert build(None, **paths)[0].form.template is None
    assert build(None, **paths, chat_template="none")[0].form.template is None
    assert build(None, **paths, chat_template=str(model))[0].form.template == "chat_template.jinja"


def test_a_jinja_template_writes_the_prompt_up_to_the_response_and_ends_its_turn(build: Build) -> None:
    encoder, tokenizer = build(GEMMA)
    encoded = encoder.encoded(TALK)
    shown = [tokenizer.decode(ids.tolist(), skip_special_tokens=False) for ids in encoded.responses]
    assert tokenizer.decode(encoded.prompt.tolist(), skip_special_tokens=False) == (
        "<bos><start_of_turn>user\none<end_of_turn>\n<start_of_turn>model\nfirst<end_of_turn>\n"
        "<start_of_turn>user\ntwo<end_of_turn>\n<start_of_turn>model\nsecond<end_of_turn>\n"
        "<start_of_turn>user\nthree<end_of_turn>\n<start_of_turn>model\n"
    )
    assert shown == ["good answer<end_of_turn>\n", "bad<end_of_turn>\n"]


def test_what_only_the_prompt_of_generation_has_belongs_to_neither_prompt_nor_response(build: Build) -> None:
    thinking = GEMMA.replace("model\n{% endif %}", "model\n<think>{% endif %}")
    encoder, tokenizer = build(thinking)
    encoded = encoder.encoded(pair("q", "<think>no", "yes"))
    assert tokenizer.decode(encoded.prompt.tolist()).endswith("model\n")
    shown = [tokenizer.decode(ids.tolist()).strip() for ids in encoded.responses]
    assert shown == ["<think>no", "yes"]


def test_a_template_that_marks_what_is_learned_ends_the_response_there(build: Build) -> None:
    marked = GEMMA.replace(
        "{{ message.content }}<end_of_turn>",
        "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<end_of_turn>"
        "{% endgeneration %}{% else %}{{ message.content }}<end_of_turn>{% endif %}\n",
    )
    encoder, tokenizer = build(marked)
    encoded = encoder.encoded(TALK)
    plain_encoder, _ = build(GEMMA)
    shown = [tokenizer.decode(ids.tolist(), skip_special_tokens=False) for ids in encoded.responses]
    assert shown == ["good answer<end_of_turn>", "bad<end_of_turn>"]
    assert encoded.prompt.tolist() == plain_encoder.encoded(TALK).prompt.tolist()


@pytest.mark.parametrize("template", [None, GEMMA, PADDLE])
def test_a_special_token_in_a_text_acts_under_a_template_alone_and_is_a_warning(
    build: Build, template: Any
) -> None:
    encoder, tokenizer = build(template)
    record = PreferenceRecord(("q",), (), ("x <eos> y", "z"), location="line 1")
    warnings = list(preference_warnings(encode_preference_split("train", [record], encoder), encoder))
    times = encoder.encoded(record).responses[0].tolist().count(tokenizer.eos_id)
    if template is None:
        assert (times, warnings) == (1, [])
    else:
        assert times == (1 if template == GEMMA else 2)
        (warning,) = warnings
        assert warning.loc[0] == "train_dataset_path"
        assert "line 1: <eos> in response" in warning.msg


def test_a_template_of_paddlenlp_is_written_piece_by_piece(build: Build) -> None:
    encoder, tokenizer = build(PADDLE)
    record = PreferenceRecord(TALK.src, TALK.tgt, TALK.responses, context={"system": "Be kind."})
    encoded = encoder.encoded(record)
    shown = [tokenizer.decode(ids.tolist(), skip_special_tokens=False) for ids in encoded.responses]
    assert tokenizer.decode(encoded.prompt.tolist(), skip_special_tokens=False) == (
        "<bos>Be kind.|[0]U:one|M:first<eos>[1]U:two|M:second<eos>[2]U:three|"
    )
    assert shown == ["M:good answer<eos>", "M:bad<eos>"]


def test_a_template_that_writes_the_response_into_the_prompt_is_refused(build: Build) -> None:
    encoder, _ = build({**PADDLE, "conversation": ["{{user}} ({{bot}})", "{{bot}}<eos>"]})
    with pytest.raises(DataError, match="writes the prompt differently for each response"):
        encoder.encoded(TALK)


def test_a_record_that_the_template_refuses_is_named(build: Build) -> None:
    encoder, _ = build("{{ raise_exception('no such role') }}")
    with pytest.raises(DataError, match=r"a record: the chat template chat_template.jinja refuses it"):
        encoder.encoded(TALK)


def test_a_named_template_is_saved_with_the_tokenizer(build: Build, tmp_path: Path) -> None:
    _, tokenizer = build(GEMMA)
    tokenizer.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "chat_template.jinja").read_text() == GEMMA


@pytest.mark.parametrize(
    ("template", "ends"), [(None, True), (GEMMA, True), (PADDLE, True), ("{{messages}}", False)]
)
def test_responses_without_an_end_are_a_warning(build: Build, template: Any, ends: bool) -> None:
    encoder, tokenizer = build(template)
    warning = preference_ending_warning(encoder, tokenizer)
    assert (warning is None) is ends


def test_raw_text_of_a_tokenizer_without_eos_is_a_warning(build: Build) -> None:
    encoder, tokenizer = build(None)
    tokenizer.eos_id = None
    warning = preference_ending_warning(encoder, tokenizer)
    assert warning is not None
    assert "no EOS token" in warning.msg


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("template", [None, GEMMA, PADDLE])
def test_the_oldest_turns_are_left_out_whole_while_it_is_too_long(
    build: Build, template: Any, lost: int
) -> None:
    encoder, _ = build(template)
    prompt, responses = encoder.form.ids(TALK, lost)
    length = len(prompt) - 1 + sum(map(len, responses))
    tight = PreferenceEncoder(encoder.form, length, 2)
    encoded = tight.encoded(TALK)
    assert (encoded.lost_turns, encoded.prompt_cut) == (lost, 0)
    assert encoded.prompt.tolist() == prompt
    assert tight.example(encoded).length == length
    assert not tight.example(encoded).cut


def test_a_last_turn_that_does_not_fit_keeps_its_end_and_both_responses_share_it(
    tokenizer: Tokenizer,
) -> None:
    record = pair("a long question with very many words in it", "yes it is", "no")
    whole = raw(tokenizer).encoded(record)
    length = raw(tokenizer).example(whole).length
    encoder = raw(tokenizer, length - 1, 6)
    encoded = encoder.encoded(record)
    assert encoded.prompt.tolist() == whole.prompt[-6:].tolist()
    assert encoded.prompt_cut == len(whole.prompt) - 6
    example = encoder.example(encoded)
    assert [response.input_ids[0] for response in example.responses] == [whole.prompt[-1]] * 2
    assert not example.cut


def test_a_prompt_that_fits_is_not_cut_however_long(tokenizer: Tokenizer) -> None:
    encoded = raw(tokenizer, 1000, 2).encoded(TALK)
    assert encoded.prompt_cut == 0
    assert len(encoded.prompt) > 2


def test_responses_that_do_not_fit_are_cut_in_proportion_and_lose_their_eos(tokenizer: Tokenizer) -> None:
    record = pair("q", "a response of very many words " * 8, "a shorter one " * 8)
    whole = raw(tokenizer).encoded(record)
    encoder = raw(tokenizer, 40, 10)
    example = encoder.example(encoder.encoded(record))
    room = 40 - (len(whole.prompt) - 1)
    total = sum(map(len, whole.responses))
    for response, ids in zip(example.responses, whole.responses, strict=True):
        kept = len(ids) * room // total
        assert response.labels.tolist() == ids[:kept].tolist()
        assert response.cut
        assert tokenizer.eos_id not in response.labels
    assert example.length in (39, 40)


def test_a_judged_response_has_the_room_for_itself(tokenizer: Tokenizer) -> None:
    record = judged("q", "many words " * 30)
    encoder = raw(tokenizer, 32, 8)
    example = encoder.example(encoder.encoded(record))
    assert example.length == 32
    assert (example.cut, example.desirable) == (True, True)


def test_a_response_that_only_lacks_room_for_its_eos_is_cut(tokenizer: Tokenizer) -> None:
    record = judged("q", "many words")
    length = raw(tokenizer).example(raw(tokenizer).encoded(record)).length
    tight = raw(tokenizer, length - 1, 8)
    (response,) = tight.example(tight.encoded(record)).responses
    assert response.cut
    assert response.labels.tolist() == plain(tokenizer, "many words")


def test_the_mismatched_response_is_cut_to_what_the_prompt_leaves(tokenizer: Tokenizer) -> None:
    encoder = raw(tokenizer, 24, 8)
    short, long = (encoder.encoded(judged("q", text)) for text in ("yes", "many words " * 30))
    mismatched = encoder.mismatched(short, long)
    assert mismatched.prompt.tolist() == short.prompt[:-1].tolist()
    assert mismatched.length == 24
    assert mismatched.cut
    assert encoder.mismatched(long, short).responses[0].labels.tolist() == short.responses[0].tolist()


@pytest.mark.parametrize(
    ("lengths", "room", "shares"),
    [
        ([3, 4], 7, [3, 4]),
        ([30, 10], 20, [15, 5]),
        ([10, 1], 10, [9, 1]),
        ([1, 100], 2, [1, 1]),
        ([1, 100], 50, [1, 49]),
        ([12], 5, [5]),
    ],
)
def test_room_is_shared_in_proportion_and_everyone_gets_some(
    lengths: list[int], room: int, shares: list[int]
) -> None:
    assert shared_room(lengths, room) == shares


@given(st.lists(st.integers(1, 500), min_size=1, max_size=2), st.integers(2, 600))
def test_shares_never_take_more_than_there_is(lengths: list[int], room: int) -> None:
    shares = shared_room(lengths, room)
    assert sum(shares) <= room
    assert all(1 <= share <= length for share, length in zip(shares, lengths, strict=True))


def test_why_a_record_is_left_out(tokenizer: Tokenizer, tiny_bloom: Path) -> None:
    encoder = raw(tokenizer)
    assert encoder.why_left_out(encoder.encoded(TALK)) is None
    bloom = raw(load_tokenizer(tiny_bloom))
    assert bloom.why_left_out(bloom.encoded(judged("", "x"))) == "its prompt has no token"
    small = raw(tokenizer, 12, 4)
    alike = pair("q", "many words " * 30 + "good", "many words " * 30 + "evil")
    why = small.why_left_out(small.encoded(alike))
    assert why == "its responses are the same as far as they fit in max_seq_len=12"
    tiny = raw(tokenizer, 5, 5)
    why = tiny.why_left_out(tiny.encoded(pair("a long long question", "a", "b")))
    assert why == "its prompt leaves no room in max_seq_len=5"


@settings(max_examples=60, deadline=None)
@given(
    turns=st.integers(1, 3),
    texts=st.lists(st.text(min_size=1, max_size=30), min_size=7, max_size=7),
    max_prompt_len=st.integers(1, 30),
    extra=st.integers(2, 40),
)
def test_no_example_is_longer_than_max_seq_len_and_the_prompt_is_shared(
    tokenizer: Tokenizer, turns: int, texts: list[str], max_prompt_len: int, extra: int
) -> None:
    record = PreferenceRecord(tuple(texts[:turns]), tuple(texts[3 : 2 + turns]), (texts[5], texts[6]))
    encoder = raw(tokenizer, max_prompt_len + extra, max_prompt_len)
    encoded = encoder.encoded(record)
    if encoder.why_left_out(encoded):
        return
    example = encoder.example(encoded)
    assert example.length <= max_prompt_len + extra
    for response, ids in zip(example.responses, encoded.responses, strict=True):
        assert response.input_ids[0] == encoded.prompt[-1]
        assert response.input_ids[1:].tolist() == response.labels[:-1].tolist()
        assert response.labels.tolist() == ids[: response.length].tolist()
        assert response.cut is (response.length < len(ids))
