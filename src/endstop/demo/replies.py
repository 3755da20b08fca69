"""The demo's two model replies, in the formats in which such replies arrive.

Data and nothing else: what the agent asks for. What comes of it is not written here.
"""

from __future__ import annotations

import json
from typing import Any

_FIRST = [
    ("edit_file", {"path": "site/menu.md", "find": "(soup)", "replace": "Lentil soup (price)"}),
    ("edit_file", {"path": "site/menu.md", "find": "(price)", "replace": "4.20"}),
    ("generate_image", {"prompt": "a bowl of lentil soup", "path": "site/soup.svg"}),
    ("build", {"directory": "site"}),
    ("publish", {"directory": "site"}),
]

GOES_WELL: dict[str, Any] = {
    "id": "chatcmpl-demo",
    "object": "chat.completion",
    "created": 1800000000,
    "model": "sample-chat",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "I put today's soup on the menu, with a picture, and publish the site.",
                "tool_calls": [
                    {
                        "id": f"call_{number}",
                        "type": "function",
                        "function": {"name": name, "arguments": json.dumps(arguments)},
                    }
                    for number, (name, arguments) in enumerate(_FIRST, 1)
                ],
            },
        }
    ],
}
"""Five calls as OpenAI chat completions carry them: arguments are text."""

_SECOND: list[tuple[str, dict[str, Any]]] = [
    ("edit_file", {"path": "site/menu.md", "find": "(dessert)", "replace": "Apple cake"}),
    ("count_words", {"path": "site/menu.md"}),
    ("build", {"directory": "site", "quality": "print"}),
    ("generate_image", {"prompt": "the dining room", "path": "press/room.svg", "quality": "print"}),
    ("generate_image", {"prompt": "the kitchen", "path": "press/kitchen.svg", "quality": "print"}),
    ("generate_image", {"prompt": "the garden", "path": "press/garden.svg", "quality": "print"}),
    ("fetch_reviews", {}),
    ("start_indexer", {}),
    ("edit_file", {"path": "site/about.md", "find": "(reviews)", "replace": "Loved by guests"}),
    ("publish", {"directory": "site"}),
]

IS_STOPPED: dict[str, Any] = {
    "id": "msg_demo",
    "type": "message",
    "role": "assistant",
    "model": "sample-messages",
    "content": [
        {"type": "text", "text": "Now the press kit: pictures in print quality, reviews, search."},
        *(
            {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}
            for number, (name, arguments) in enumerate(_SECOND, 1)
        ),
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
}
"""Ten calls as Anthropic messages carry them: arguments are objects."""
