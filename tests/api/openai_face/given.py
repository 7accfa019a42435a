"""Training files as OpenAI's users have them."""

import json
from typing import Any


def lines(*records: dict[str, Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def chats(count: int = 12) -> bytes:
    """Chats about numbered berths."""
    return lines(
        *(
            {
                "messages": [
                    message("user", f"Which boat lies at berth {number}?"),
                    message("assistant", f"Berth {number} holds boat {number * 7 % 50}."),
                ]
            }
            for number in range(count)
        )
    )


def preferences(count: int = 12) -> bytes:
    """Preferences of an answer over another."""
    return lines(
        *(
            {
                "input": {"messages": [message("user", f"Which boat lies at berth {number}?")]},
                "preferred_output": [message("assistant", f"Boat {number}.")],
                "non_preferred_output": [message("assistant", "I do not know.")],
            }
            for number in range(count)
        )
    )
