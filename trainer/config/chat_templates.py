"""Chat templates: which one a job uses, read and checked; nothing is rendered here.

Two forms: a Jinja text as Hugging Face tokenizers carry it (called with `messages`), and PaddleNLP's
`chat_template.json` with a Jinja text for each piece of a conversation.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import TemplateSyntaxError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trainer.config.problems import ConfigError, Problem

FIELD = "chat_template"
NONE = "none"
PADDLENLP_FILE = "chat_template.json"
JINJA_FILE = "chat_template.jinja"
TOKENIZER_CONFIG = "tokenizer_config.json"
#: Where a folder's template is looked for, in this order.
FILES = (PADDLENLP_FILE, JINJA_FILE, TOKENIZER_CONFIG)
LARGEST_FILE = 1024 * 1024
#: Characters of Jinja that are parsed in a second or two; the longest templates of models have some 20 000.
LARGEST_TEXT = 64 * 1024


@dataclass(frozen=True)
class JinjaTemplate:
    """A Hugging Face chat template; `origin` is the file it came from."""

    origin: str
    text: str

    def pieces(self) -> dict[str, str]:
        """Every Jinja text by a name for messages."""
        return {"chat_template": self.text}

    def as_file(self) -> tuple[str, str]:
        """The file beside a tokenizer that holds this template: name and content."""
        return JINJA_FILE, self.text


@dataclass(frozen=True)
class PaddleTemplate:
    """PaddleNLP's form: pieces that are rendered one by one; `system` may be absent."""

    origin: str
    system: str | None
    user: str
    bot: str
    query: str

    def pieces(self) -> dict[str, str]:
        """Every Jinja text by a name for messages."""
        named = {"conversation[0]": self.user, "conversation[1]": self.bot, "query": self.query}
        return named if self.system is None else {"system": self.system, **named}

    def as_file(self) -> tuple[str, str]:
        """The file beside a tokenizer that holds this template: name and content."""
        content = {"system": self.system, "conversation": [self.user, self.bot], "query": self.query}
        return PADDLENLP_FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n"


ChatTemplate = JinjaTemplate | PaddleTemplate


def chat_template(argument: str | None, tokenizer_folder: Path) -> ChatTemplate | None:
    """The template that `chat_template` means; None: raw text.

    Args:
        argument: an existing file or folder, "none", or None for the tokenizer's own.
        tokenizer_folder: where that is looked for.

    Raises:
        ConfigError: there is no template at the place, or it cannot be used.
    """
    if argument == NONE:
        return None
    if argument is None:
        found = _in_folder(tokenizer_folder)
    else:
        path = Path(argument)
        found = _in_folder(path) if path.is_dir() else _in_file(path)
        if found is None:
            msg = f"{path} has no chat template in {', '.join(FILES)}"
            raise _problem(msg, 'Set it to "none" for raw text.')
    if found is not None:
        _check(found)
    return found


class _PlainCode(CodeGenerator):
    """Code that computes nothing before a template is rendered, so that reading one is always quick."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if isinstance(node, nodes.TemplateData):
            return super()._output_child_to_const(node, frame, finalize)
        raise nodes.Impossible


class _Sandbox(ImmutableSandboxedEnvironment):
    code_generator_class = _PlainCode


def jinja_environment(keep_trailing_newline: bool = False) -> ImmutableSandboxedEnvironment:
    """The sandbox that templates are read and rendered in, as Hugging Face sets it up.

    Jinja's optimizer is off: it computes constant expressions, however large, where a template is read.
    """
    return _Sandbox(
        optimized=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=keep_trailing_newline,
        extensions=["jinja2.ext.loopcontrols", GenerationTag],
    )


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks what is learned; the marks become part of the text.

    The marks are Unicode noncharacters, which no text should have; records that have them are refused.
    """

    BEGIN = "\ufdd0"
    END = "\ufdd1"
    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        begin, end = (
            nodes.Output([nodes.TemplateData(mark)], lineno=line) for mark in (self.BEGIN, self.END)
        )
        return [begin, *body, end]


def _in_folder(folder: Path) -> ChatTemplate | None:
    for name in FILES:
        if (folder / name).is_file() and (found := _in_file(folder / name)):
            return found
    return None


def _in_file(path: Path) -> ChatTemplate | None:
    """The template in a file; None when it is a tokenizer_config.json without one."""
    text = _read(path)
    if path.suffix != ".json":
        return JinjaTemplate(path.name, text)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _problem(f"{path.name} is not JSON: {error}", "Correct the file.") from None
    if not isinstance(content, dict):
        raise _problem(f"{path.name} is not a JSON object", "Correct the file.")
    if "conversation" in content:
        return _paddlenlp(path.name, content)
    return _of_tokenizer(path.name, content)


def _paddlenlp(origin: str, content: dict[str, Any]) -> PaddleTemplate:
    conversation, query, system = content["conversation"], content.get("query"), content.get("system")
    pair = conversation if isinstance(conversation, list) and len(conversation) == 2 else [None, None]
    texts = [part for part in (*pair, query) if isinstance(part, str)]
    if len(texts) < 3:
        msg = f"{origin}: expected conversation with a text for the user and one for the answer, and query"
        raise _problem(msg, 'For example {"conversation": ["User: {{user}}", "{{bot}}</s>"], "query": "…"}.')
    if system is not None and not isinstance(system, str):
        raise _problem(f"{origin}: system is not a text", "Set it to null or to a Jinja text.")
    return PaddleTemplate(origin, system, *texts)


def _of_tokenizer(origin: str, content: dict[str, Any]) -> JinjaTemplate | None:
    """The `chat_template` entry; among several named ones the default."""
    template = content.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template if _is_named(entry)}
        template = named.get("default")
    if template is None and origin == TOKENIZER_CONFIG:
        return None
    if not isinstance(template, str):
        msg = f"{origin} has neither conversation nor a text chat_template"
        raise _problem(msg, "Give a file with a chat template.")
    return JinjaTemplate(origin, template)


def _is_named(entry: object) -> bool:
    return isinstance(entry, dict) and {"name", "template"} <= entry.keys()


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE and path.name != TOKENIZER_CONFIG:
            raise _problem(f"{path} is larger than 1 MiB, expected a chat template", "Give another file.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _problem(f"{path}: {error.strerror or error}", "Give an existing file or folder.") from None
    except UnicodeDecodeError:
        raise _problem(f"{path.name} is not UTF-8 text", "Convert it.") from None


def _check(template: ChatTemplate) -> None:
    """Refuse what cannot be rendered: broken syntax, and what the sandbox will not do."""
    length = sum(map(len, template.pieces().values()))
    if length > LARGEST_TEXT:
        msg = f"{template.origin} has {length} characters of Jinja, expected at most {LARGEST_TEXT}"
        raise _problem(msg, "Shorten it.")
    for name, text in template.pieces().items():
        try:
            environment = jinja_environment()
            for node in environment.parse(text).find_all(nodes.Node):
                if reason := _forbidden(node):
                    where = f"{template.origin}, {name}, line {node.lineno}"
                    raise _problem(f"{where}: {reason}, which templates may not do", "Remove it.")
            environment.from_string(text)
        except TemplateSyntaxError as error:
            where = f"{template.origin}, {name}, line {error.lineno}"
            raise _problem(f"{where}: {error.message}", "Correct the Jinja text.") from None
        except RecursionError:
            raise _problem(f"{template.origin}, {name}: nested too deeply", "Simplify it.") from None
        except SyntaxError as error:  # of the Python code that Jinja makes of it
            raise _problem(f"{template.origin}, {name}: {error.msg}", "Simplify it.") from None
        except (ValueError, MemoryError) as error:  # such as a number of thousands of digits
            reason = str(error) or "it needs too much memory"
            raise _problem(f"{template.origin}, {name}: {reason}", "Simplify it.") from None


def _forbidden(node: nodes.Node) -> str:
    if isinstance(node, nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends):
        return "it reads another file"
    if isinstance(node, nodes.EvalContextModifier):
        return "it changes how texts are escaped"
    named = node.attr if isinstance(node, nodes.Getattr) else None
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        named = node.arg.value
    if isinstance(named, str) and named.startswith("_"):
        return f"it reaches for {named[:40]}"
    return ""


def _problem(msg: str, hint: str) -> ConfigError:
    return ConfigError(Problem((FIELD,), msg, hint))
