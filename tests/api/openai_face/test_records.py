"""Lines of OpenAI's training files become records of the service; what would be lost is refused."""

import json
from typing import Any

import pytest

from api.openai_face.records import to_record
from trainer.config.records import RecordError


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


ASKED, ANSWERED = said("user", "How deep?"), said("assistant", "Nine feet.")


def converted(line: dict[str, Any]) -> dict[str, Any]:
    return json.loads(to_record(json.dumps(line).encode()))


def refused(line: dict[str, Any]) -> str:
    with pytest.raises(RecordError) as refusal:
        converted(line)
    return refusal.value.message


def test_a_chat_is_a_conversation_with_its_system_message_as_context() -> None:
    chat = [said("system", "Be brief."), ASKED, ANSWERED, said("user", "Now?"), said("assistant", "Ten.")]
    assert converted({"messages": chat}) == {
        "src": ["How deep?", "Now?"],
        "tgt": ["Nine feet.", "Ten."],
        "context": {"system": "Be brief."},
    }


def test_a_preference_has_the_preferred_answer_first() -> None:
    line = {
        "input": {"messages": [ASKED, ANSWERED, said("user", "Now?")], "tools": []},
        "preferred_output": [said("assistant", "Ten feet.")],
        "non_preferred_output": [said("assistant", "No idea.")],
    }
    assert converted(line) == {
        "src": ["How deep?", "Now?"],
        "tgt": ["Nine feet."],
        "response": ["Ten feet.", "No idea."],
        "sort": [1, 0],
    }


def test_parts_of_text_are_one_text() -> None:
    parts = [{"type": "text", "text": "How "}, {"type": "text", "text": "deep?"}]
    assert converted({"messages": [said("user", parts), ANSWERED]})["src"] == ["How deep?"]


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([ASKED], "expected the last one to be of the assistant"),
        ([ASKED, ASKED, ANSWERED], 'messages[1].role: got "user", expected assistant'),
        ([ASKED, said("system", "x"), ANSWERED], 'messages[1].role: got "system"'),
        ([ASKED, said("assistant", "x", weight=0)], "messages[1].weight: got 0"),
        ([ASKED, said("assistant", None, tool_calls=[{}])], "messages[1].tool_calls: tools"),
        ([said("tool", "x"), ANSWERED], "messages[0].role is tool"),
        ([said("user", [{"type": "image_url", "image_url": {}}]), ANSWERED], "content[0] is an image"),
        ([said("user", None), ANSWERED], "messages[0].content: got null"),
        ([said("user", "x", name="Ann"), ANSWERED], "messages[0].name is not known"),
        ("How deep?", "expected a list of messages"),
    ],
)
def test_what_cannot_be_trained_on_is_named(messages: Any, why: str) -> None:
    assert why in refused({"messages": messages})


def test_tools_beside_the_messages_are_refused() -> None:
    assert "tools: tools cannot be trained on" in refused({"messages": [ASKED, ANSWERED], "tools": [{}]})


def test_records_of_the_service_are_sent_elsewhere() -> None:
    assert "POST /datasets takes" in refused({"src": "a", "tgt": "b"})


def test_a_preference_wants_one_message_of_the_assistant_each() -> None:
    line = {"input": {"messages": [ASKED]}, "preferred_output": [ANSWERED], "non_preferred_output": [ASKED]}
    assert 'non_preferred_output[0].role: got "user"' in refused(line)
    del line["non_preferred_output"]
    assert refused(line) == "non_preferred_output is missing"
