"""A model with tools, served: its words are streamed, its questions asked, a stop gets there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.house import Served, head, message, until


@pytest.fixture(scope="module")
def finder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("finder")
    agent = Path(__file__).with_name("model_agent.py")
    server = Served(folder, "--grace", "0.3", agent=agent)
    yield server
    server.end()


def text_of(task: dict[str, Any]) -> str:
    """The one text of the one artifact."""
    ((part,),) = (artifact["parts"] for artifact in task["artifacts"])
    return str(part["text"])


def test_its_card_tells_its_tools(finder: Served) -> None:
    card = finder.http.get("/.well-known/agent-card.json").json()
    assert (card["name"], card["description"]) == ("Finder", "Finds things.")
    assert [skill["id"] for skill in card["skills"]] == ["look", "delete", "choose", "work"]


def test_what_the_model_says_last_is_the_artifact(finder: Served) -> None:
    task = finder.send("look", token=None)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(task) == "So it is 42 then."
    said = [part["text"] for one in task["history"] for part in one["parts"]]
    assert said == ["look", "Let me see."]


def test_it_is_streamed_as_it_comes(finder: Served) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendStreamingMessage",
        "params": {"message": message("look")},
    }
    pieces: list[str] = []
    with finder.http.stream("POST", "/", json=body, headers=head(None)) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                update = json.loads(line[6:])["result"].get("artifactUpdate")
                if update is not None:
                    text = update["artifact"]["parts"][0]["text"]
                    pieces = [*pieces, text] if update.get("append") else [text]
                    last = pieces
                    if len(pieces) > 1:
                        grown = list(pieces)
    assert "".join(grown) == "So it is 42 then."
    assert len(grown) > 1
    assert last == ["So it is 42 then."], "it ends whole"


@pytest.mark.parametrize(
    ("answer", "text"),
    [("yes", "So a.txt is gone then."), ("no", "a human denied it")],
)
def test_law_13_one_approval_is_asked_of_the_user_of_the_task(
    finder: Served, answer: str, text: str
) -> None:
    task = finder.send("delete", token=None)
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    asked = task["status"]["message"]["parts"][0]["text"]
    assert asked.startswith('May delete run with {"path":"a.txt"}?')
    task = finder.send(answer, token=None, taskId=task["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text in text_of(task)


def test_a_question_of_a_tool_is_asked_of_the_user_of_the_task(finder: Served) -> None:
    task = finder.send("choose", token=None)
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert task["status"]["message"]["parts"][0]["text"].startswith("which one?")
    task = finder.send("the left one", token=None, taskId=task["id"])
    assert text_of(task) == "So the left one then."


def test_law_17_children_settle_a_cancel_reaches_the_tools_of_the_model(finder: Served) -> None:
    task = finder.send("work", token=None, at_once=True)["id"]
    until(lambda: finder.ticks("model") > 2)
    answer = finder.rpc("CancelTask", {"id": task}, token=None)["result"]
    assert answer["status"]["state"] == "TASK_STATE_CANCELED"
    stopped = finder.ticks("model")
    time.sleep(0.2)
    assert finder.ticks("model") == stopped


def test_a_model_that_fails_fails_the_task_and_says_why(finder: Served) -> None:
    task = finder.send("something else", token=None)
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "the model is broken" in task["status"]["message"]["parts"][0]["text"]
