"""Which encoder the arguments mean, and whether it teaches the model to end an answer."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer import load_tokenizer
from trainer.config import FinetuneConfig
from trainer.data.chat_jinja import JinjaEncoder
from trainer.data.chat_paddlenlp import PaddleEncoder
from trainer.data.encoding import build_encoder, ending_warning
from trainer.data.sft import PlainEncoder

MakeConfig = Callable[..., FinetuneConfig]
JINJA = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
PADDLE = json.dumps({"system": None, "conversation": ["{{user}}", "{{bot}}<eos>"], "query": "{{query}}"})


@pytest.fixture
def model(tiny_gemma: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_gemma, tmp_path / "model"))


def test_without_a_template_records_are_raw_text(make_config: MakeConfig, model: Path) -> None:
    config = make_config(model_name_or_path=str(model))
    assert isinstance(build_encoder(config, load_tokenizer(model)), PlainEncoder)


def test_the_tokenizers_own_template_is_used_unless_it_is_none(make_config: MakeConfig, model: Path) -> None:
    (model / "chat_template.jinja").write_text(JINJA)
    tokenizer, paths = load_tokenizer(model), {"model_name_or_path": str(model)}
    assert isinstance(build_encoder(make_config(**paths), tokenizer), JinjaEncoder)
    assert isinstance(build_encoder(make_config(**paths, chat_template=str(model)), tokenizer), JinjaEncoder)
    assert isinstance(build_encoder(make_config(**paths, chat_template="none"), tokenizer), PlainEncoder)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("chat_template.json", PADDLE, PaddleEncoder),
        ("chat_template.json", json.dumps({"chat_template": JINJA}), JinjaEncoder),
        ("chat_template.jinja", JINJA, JinjaEncoder),
        ("tokenizer_config.json", json.dumps({"chat_template": JINJA}), JinjaEncoder),
    ],
)
def test_a_file_or_its_folder_may_be_named(
    make_config: MakeConfig, model: Path, tmp_path: Path, name: str, text: str, kind: type
) -> None:
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / name).write_text(text)
    for given in (folder, folder / name):
        config = make_config(model_name_or_path=str(model), chat_template=str(given))
        assert isinstance(build_encoder(config, load_tokenizer(model)), kind)


@pytest.mark.parametrize(
    ("name", "text", "ends"),
    [
        ("chat_template.jinja", JINJA, True),
        ("chat_template.jinja", "{% for m in messages %}{{ m.content }}<end_of_turn>{% endfor %}", True),
        ("chat_template.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", False),
        ("chat_template.json", PADDLE, True),
        ("chat_template.json", PADDLE.replace("<eos>", ""), False),
    ],
)
def test_a_template_whose_answers_do_not_end_is_a_warning(
    make_config: MakeConfig, model: Path, name: str, text: str, ends: bool
) -> None:
    (model / name).write_text(text)
    warning = ending_warning(make_config(model_name_or_path=str(model)), load_tokenizer(model))
    if ends:
        assert warning is None
    else:
        assert warning is not None
        assert f"{name} puts neither EOS nor another special token behind an answer" in warning.msg


def test_raw_text_ends_with_the_tokenizers_eos(make_config: MakeConfig, model: Path) -> None:
    config = make_config(model_name_or_path=str(model))
    assert ending_warning(config, load_tokenizer(model)) is None
    tokenizer = load_tokenizer(model)
    tokenizer.eos_id = None
    warning = ending_warning(config, tokenizer)
    assert warning is not None
    assert "no EOS token" in warning.msg


@pytest.mark.parametrize(("name", "text"), [("chat_template.jinja", JINJA), ("chat_template.json", PADDLE)])
def test_a_template_that_was_named_is_saved_with_the_tokenizer(
    make_config: MakeConfig, model: Path, tmp_path: Path, name: str, text: str
) -> None:
    (model / "chat_template.jinja").write_text("the tokenizer's own")
    (tmp_path / name).write_text(text)
    tokenizer = load_tokenizer(model)
    build_encoder(make_config(model_name_or_path=str(model), chat_template=str(tmp_path / name)), tokenizer)
    tokenizer.save(tmp_path / "saved")
    saved = {path.name for path in (tmp_path / "saved").glob("chat_template*")}
    assert saved == {name}
    again = make_config(model_name_or_path=str(tmp_path / "saved"))
    assert build_encoder(again, load_tokenizer(tmp_path / "saved")).template == name
