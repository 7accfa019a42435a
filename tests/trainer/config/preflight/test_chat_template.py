"""Chat templates are checked where a job is sent: found inside the roots, read, parsed, never rendered."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.config import FinetuneConfig
from trainer.config.preflight import Roots, check_job
from trainer.config.problems import Problem

Config = Callable[..., FinetuneConfig]

GOOD = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"


@pytest.fixture
def problems(config: Config, roots: Roots) -> Callable[..., tuple[Problem, ...]]:
    def check(**changes: Any) -> tuple[Problem, ...]:
        return check_job(config(**changes), roots).problems

    return check


Problems = Callable[..., tuple[Problem, ...]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("chat_template.jinja", GOOD),
        ("tokenizer_config.json", json.dumps({"chat_template": GOOD})),
        (
            "tokenizer_config.json",
            json.dumps({"chat_template": [{"name": "default", "template": GOOD}, {"name": "rag"}]}),
        ),
        (
            "chat_template.json",
            json.dumps({"system": None, "conversation": ["{{user}}", "{{bot}}</s>"], "query": "{{query}}"}),
        ),
        ("chat_template.jinja", "{% generation %}{{ messages[0].content }}{% endgeneration %}"),
    ],
)
def test_a_template_beside_the_tokenizer_is_accepted(
    problems: Problems, model: Path, name: str, text: str
) -> None:
    (model / name).write_text(text)
    assert problems() == ()


def test_a_template_that_takes_long_to_parse_is_refused(problems: Problems, model: Path) -> None:
    text = "{{ a }}" * 100_000
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": text}))
    (problem,) = problems()
    assert problem.msg == "tokenizer_config.json has 700000 characters of Jinja, expected at most 65536"


@pytest.mark.parametrize("form", ["{{ %s }}", "{%% set x = %s %%}", "{%% if %s %%}{%% endif %%}"])
def test_reading_a_template_computes_nothing_of_it(form: str) -> None:
    script = "import sys; from trainer.config.chat_templates import jinja_environment as environment"
    script += "; environment().from_string(sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, form % "9 ** (9 ** 9)"], timeout=30, check=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{% for m in messages %}", "line 1: Unexpected end of template"),
        ("\n{{ messages | no_such_filter }}", "line 2: No filter named 'no_such_filter'"),
        ("{{ messages.__class__ }}", "it reaches for __class__"),
        ("{{ messages['__init__'] }}", "it reaches for __init__"),
        ("{{ (messages | first)._secret }}", "it reaches for _secret"),
        ("{% include '/etc/passwd' %}", "it reads another file"),
        ("{% for a in b %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
        ("{% if a %}" * 120 + "{% endif %}" * 120, "too many levels of indentation"),
        ("{% break %}", "'break' outside loop"),
        ("{{ f(a=1, a=2) }}", "keyword argument repeated"),
        ("{{ " + "9" * 5000 + " }}", "Exceeds the limit"),
        ("{% autoescape 9**(9**9) %}{% endautoescape %}", "it changes how texts are escaped"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_with_the_reason(
    problems: Problems, model: Path, text: str, reason: str
) -> None:
    (model / "chat_template.jinja").write_text(text)
    (problem,) = problems()
    assert problem.loc == ("chat_template",)
    assert reason in problem.msg
    assert problems(chat_template="none") == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"conversation": ["{{user}}"], "query": "q"}', "expected conversation with a text for the user"),
        ('{"conversation": ["{{user}}", "{{bot}}"]}', "expected conversation with a text for the user"),
        ('{"conversation": ["{{user", "{{bot}}"], "query": "q"}', "conversation[0], line 1"),
        ('{"conversation": ["a", "b"], "query": "q", "system": 5}', "system is not a text"),
        ('{"other": 1}', "neither conversation nor a text chat_template"),
    ],
)
def test_a_broken_chat_template_json_is_refused_with_the_reason(
    problems: Problems, model: Path, content: str, reason: str
) -> None:
    (model / "chat_template.json").write_text(content)
    (problem,) = problems()
    assert reason in problem.msg


def test_the_argument_names_a_file_or_a_folder_inside_the_roots(
    config: Config, roots: Roots, problems: Problems, tmp_path: Path
) -> None:
    folder = roots.data[0] / "templates"
    folder.mkdir()
    (folder / "chat_template.jinja").write_text(GOOD)
    checked = check_job(config(chat_template="templates/chat_template.jinja"), roots)
    assert checked.problems == ()
    assert checked.config.resolved()["chat_template"] == str(folder / "chat_template.jinja")
    assert problems(chat_template=str(folder)) == ()
    (missing,) = problems(chat_template="templates/other.jinja")
    assert "does not exist" in missing.msg
    (tmp_path / "outside.jinja").write_text(GOOD)
    (outside,) = problems(chat_template=str(tmp_path / "outside.jinja"))
    assert "outside the allowed model and data folders" in outside.msg
    (climbing,) = problems(chat_template="templates/../templates")
    assert "without .." in climbing.msg


def test_a_folder_without_a_template_is_refused(problems: Problems, roots: Roots) -> None:
    (roots.data[0] / "empty").mkdir()
    (problem,) = problems(chat_template="empty")
    assert "has no chat template in chat_template.json, chat_template.jinja" in problem.msg


def test_a_template_that_is_a_link_to_a_place_outside_is_refused(
    problems: Problems, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside.jinja").write_text(GOOD)
    (model / "chat_template.jinja").symlink_to(tmp_path / "outside.jinja")
    (problem,) = (problem for problem in problems() if problem.loc == ("chat_template",))
    assert "a link to a place outside the allowed folders" in problem.msg


def test_the_name_of_the_model_means_its_own_template(problems: Problems, model: Path) -> None:
    (model / "chat_template.jinja").write_text("{{ broken")
    assert problems(chat_template=str(model)) == problems() != ()
