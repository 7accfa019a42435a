"""Lines of OpenAI's training files as records of the service: chats (supervised) and preferences (dpo)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.datasets.splits import Kind
from trainer.config.records import RecordError, found_keys, read_object
from trainer.config.values import printable, show

CHAT = frozenset({"messages", "tools", "functions", "parallel_tool_calls"})
PREFERENCE = frozenset({"input", "preferred_output", "non_preferred_output"})
INPUT = frozenset({"messages", "tools", "parallel_tool_calls"})
MESSAGE = frozenset({"role", "content", "weight"})
TOOLS = frozenset({"tools", "functions", "tool_calls", "function_call", "tool_call_id"})
LONGEST_KEY = 80
SYSTEM = ("system", "developer")
KEYS = "messages, or input, preferred_output and non_preferred_output"


@dataclass
class ChatKind(Kind):
    """Reads OpenAI's lines; what is kept of them are records of the service."""

    with_system: int = field(default=0, init=False)
    """Records so far that have a system message."""
    _stored: bytes = field(default=b"", init=False)

    def parse(self, line: bytes) -> Any:
        self._stored = to_record(line)
        record = super().parse(self._stored)
        self.with_system += bool(record.context)
        return record

    def stored(self, line: bytes) -> bytes:
        return self._stored


def to_record(line: bytes) -> bytes:
    """The record of a line.

    Raises:
        RecordError: for what is no such line, and for what cannot be trained on: tools, images, audio,
            answers that are not learned, a system message that is not the first, turns that do not alternate.
    """
    given = read_object(line, KEYS)
    if "messages" in given:
        record = _chat(given)
    elif given.keys() & PREFERENCE:
        record = _preference(given)
    else:
        msg = f"found {found_keys(given)}, expected {KEYS}; POST /datasets takes records of the service"
        raise RecordError("another kind of data", msg)
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _chat(given: Mapping[str, Any]) -> dict[str, Any]:
    _check_keys(given, CHAT, "")
    system, turns = _conversation(given["messages"], "messages")
    if len(turns) % 2 or not turns:
        raise RecordError("no answer", "messages: expected the last one to be of the assistant")
    return {"src": turns[::2], "tgt": turns[1::2]} | _context(system)


def _preference(given: Mapping[str, Any]) -> dict[str, Any]:
    _check_keys(given, PREFERENCE, "")
    for name in sorted(PREFERENCE - given.keys()):
        raise RecordError(f"no {name}", f"{name} is missing")
    asked = given["input"]
    if not isinstance(asked, dict) or "messages" not in asked:
        raise RecordError("wrong type", f"input: got {show(asked)}, expected an object with messages")
    _check_keys(asked, INPUT, "input.")
    system, turns = _conversation(asked["messages"], "input.messages")
    if len(turns) % 2 == 0:
        raise RecordError("no question", "input.messages: expected the last one to be of the user")
    answers = [_answer(given[name], name) for name in ("preferred_output", "non_preferred_output")]
    return {"src": turns[::2], "tgt": turns[1::2], "response": answers, "sort": [1, 0]} | _context(system)


def _context(system: str | None) -> dict[str, Any]:
    return {} if system is None else {"context": {"system": system}}


def _answer(given: object, where: str) -> str:
    if not isinstance(given, list) or len(given) != 1:
        raise RecordError("wrong number of answers", f"{where}: expected a list with one message")
    role, content = _message(given[0], f"{where}[0]")
    if role != "assistant":
        raise RecordError("wrong role", f"{where}[0].role: got {show(role)}, expected assistant")
    return content


def _conversation(given: object, where: str) -> tuple[str | None, list[str]]:
    """The system message, and the texts of user and assistant in turn."""
    if not isinstance(given, list) or not given:
        raise RecordError("wrong type", f"{where}: got {show(given)}, expected a list of messages")
    messages = [_message(message, f"{where}[{number}]") for number, message in enumerate(given)]
    system = messages.pop(0)[1] if messages[0][0] in SYSTEM else None
    first = len(given) - len(messages)
    for number, (role, _) in enumerate(messages):
        expected = "assistant" if number % 2 else "user"
        if role != expected:
            place = f"{where}[{first + number}].role"
            msg = f"{place}: got {show(role)}, expected {expected}: turns alternate behind one system message"
            raise RecordError("wrong order of roles", msg)
    return system, [content for _, content in messages]


def _message(given: object, where: str) -> tuple[str, str]:
    if not isinstance(given, dict):
        raise RecordError("wrong type", f"{where}: got {show(given)}, expected a message")
    role = given.get("role")
    if role in ("tool", "function"):
        raise RecordError("tools", f"{where}.role is {role}: tools cannot be trained on")
    if role not in (*SYSTEM, "user", "assistant"):
        raise RecordError("wrong role", f"{where}.role: got {show(role)}, expected system, user or assistant")
    _check_keys(given, MESSAGE, f"{where}.")
    weight = given.get("weight")
    if weight is not None and (weight != 1 or isinstance(weight, bool) or role != "assistant"):
        msg = f"{where}.weight: got {show(weight)}; every answer is learned, so only 1 can be had, on answers"
        raise RecordError("weight", msg)
    return role, _text(given.get("content"), f"{where}.content")


def _text(given: object, where: str) -> str:
    if isinstance(given, str):
        return given
    if not isinstance(given, list) or not given:
        raise RecordError("no text", f"{where}: got {show(given)}, expected a text")
    return "".join(_part(part, f"{where}[{number}]") for number, part in enumerate(given))


def _part(given: object, where: str) -> str:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "text" and isinstance(given, dict) and isinstance(given.get("text"), str):
        return given["text"]
    if kind in ("image_url", "input_image"):
        raise RecordError("images", f"{where} is an image: only texts can be trained on")
    raise RecordError("no text", f"{where}: got {show(given)}, expected a part of type text")


def _check_keys(given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    """Refuse what would be lost, and tools; an empty list of tools is none."""
    for name in sorted(given):
        if name in TOOLS and given[name]:
            raise RecordError("tools", f"{where}{name}: tools cannot be trained on")
        if name not in known and given[name] is not None:
            raise RecordError(
                "unknown key", f"{where}{printable(name)[:LONGEST_KEY]} is not known and would be lost"
            )
