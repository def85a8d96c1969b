"""An agent that exists, as a gateway meets it: it keeps its whole history itself and sends it again with every request.

It writes each API as its clients do, reads a stream strictly, and answers calls by a function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from transom.testing.model_server import APIS

__all__ = ["Client", "Refused"]

_TOOL = "read"
_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


class Refused(Exception):
    """The answer was an error."""

    def __init__(self, status: int, body: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"{status}: {body}")
        self.status, self.body, self.headers = status, body, headers


@dataclass(slots=True)
class Client:
    """`history` is the list of its API; `run` gives the result of a call by name and arguments."""

    api: str
    base_url: str
    run: Callable[[str, dict[str, Any]], str]
    is_streamed: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    model: str = "m1"
    has_tools: bool = True
    history: list[dict[str, Any]] = field(default_factory=list)
    usages: list[dict[str, Any]] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    """What the gateway said of each request."""
    raw: list[bytes] = field(default_factory=list)
    """The answers' bytes."""

    def say(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def body(self) -> bytes:
        """The next request."""
        made: dict[str, Any] = {"model": self.model, "stream": self.is_streamed}
        match self.api:
            case "anthropic":
                made |= {"max_tokens": 500, "system": [{"type": "text", "text": "You work."}]}
                made["messages"] = self._marked()
                made["tools"] = [{"name": _TOOL, "description": "Reads.", "input_schema": _SCHEMA}]
            case "openai_chat":
                made["messages"] = [{"role": "system", "content": "You work."}, *self.history]
                function = {"name": _TOOL, "description": "Reads.", "parameters": _SCHEMA}
                made["tools"] = [{"type": "function", "function": function}]
                if self.is_streamed:
                    made["stream_options"] = {"include_usage": True}
            case _:
                made |= {"instructions": "You work.", "input": self.history, "store": False}
                made["tools"] = [{"type": "function", "name": _TOOL, "description": "Reads.", "parameters": _SCHEMA}]
        if not self.has_tools:
            del made["tools"]
        return json.dumps(made, ensure_ascii=False).encode("utf-8", "surrogatepass")

    def _marked(self) -> list[dict[str, Any]]:
        """With a cache mark on the last block, which moves."""
        *before, last = self.history
        content = last["content"]
        blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
        blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
        return [*before, {**last, "content": blocks}]

    def step(self) -> bool:
        """One request, and the results of what it calls. False: nothing was called. Raises `Refused`."""
        content = self.ask(self.body())
        calls = self._take(content)
        results = [(call_id, self.run(name, arguments)) for call_id, name, arguments in calls]
        match self.api:
            case "anthropic":
                if results:
                    blocks = [{"type": "tool_result", "tool_use_id": one, "content": text} for one, text in results]
                    self.history.append({"role": "user", "content": blocks})
            case "openai_chat":
                self.history.extend({"role": "tool", "tool_call_id": one, "content": text} for one, text in results)
            case _:
                self.history.extend(
                    {"type": "function_call_output", "call_id": one, "output": text} for one, text in results
                )
        return bool(results)

    def ask(self, body: bytes) -> dict[str, Any]:
        """Send a request; its answer as the whole answer's JSON. Raises `Refused`, `httpx2.HTTPError`."""
        headers = {"content-type": "application/json", "x-api-key": "sk-secret", **self.headers}
        with httpx2.stream(
            "POST", self.base_url + APIS[self.api], content=body, headers=headers, timeout=60
        ) as response:
            data = b"".join(response.iter_bytes())
        self.status.append(response.headers.get("x-transom-status", ""))
        self.raw.append(data)
        if response.status_code != 200:
            raise Refused(response.status_code, data.decode(), response.headers)
        if not self.is_streamed:
            found: dict[str, Any] = json.loads(data)
            return found
        return _READ[self.api](_events(data))

    def _take(self, answer: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
        """Put an answer into the history. Its calls: id, name, arguments."""
        self.usages.append(answer["usage"])
        match self.api:
            case "anthropic":
                content = answer["content"]
                self.history.append({"role": "assistant", "content": content})
                return [(one["id"], one["name"], one["input"]) for one in content if one["type"] == "tool_use"]
            case "openai_chat":
                message = answer["choices"][0]["message"]
                self.history.append(message)
                calls = message.get("tool_calls") or []
                return [(one["id"], one["function"]["name"], json.loads(one["function"]["arguments"])) for one in calls]
            case _:
                self.history.extend({key: one[key] for key in one if key != "status"} for one in answer["output"])
                calls = [one for one in answer["output"] if one["type"] == "function_call"]
                return [(one["call_id"], one["name"], json.loads(one["arguments"])) for one in calls]


def _events(data: bytes) -> list[dict[str, Any]]:
    """A stream's events; it must end with a blank line."""
    assert data.endswith(b"\n\n"), data[-200:]
    lines = (line for frame in data.split(b"\n\n") for line in frame.splitlines() if line.startswith(b"data:"))
    payloads = [line[5:].strip() for line in lines]
    return [json.loads(one) for one in payloads if one != b"[DONE]"]


def _anthropic(events: list[dict[str, Any]]) -> dict[str, Any]:
    first, *rest = (one for one in events if one["type"] != "ping")
    assert first["type"] == "message_start"
    answer = first["message"]
    pieces: dict[int, str] = {}
    for one in rest:
        match one["type"]:
            case "content_block_start":
                assert one["index"] == len(answer["content"]), "indices have a gap"
                answer["content"].append(one["content_block"])
            case "content_block_delta":
                delta = one["delta"]
                if delta["type"] == "text_delta":
                    answer["content"][one["index"]]["text"] += delta["text"]
                else:
                    pieces[one["index"]] = pieces.get(one["index"], "") + delta["partial_json"]
            case "message_delta":
                answer |= one["delta"]
                answer["usage"] |= one["usage"]
            case "error":
                raise Refused(200, json.dumps(one), {})
    assert rest[-1]["type"] == "message_stop", rest[-1]
    for index, written in pieces.items():
        answer["content"][index]["input"] = json.loads(written)
    found: dict[str, Any] = answer
    return found


def _chat(events: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    answer: dict[str, Any] = {"choices": [{"message": message}], "usage": None}
    assert len({one["id"] for one in events}) == 1, "one answer has one id"
    for one in events:
        answer["usage"] = one.get("usage") or answer["usage"]
        for choice in one["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls", ()):
                calls = message.setdefault("tool_calls", [])
                assert call["index"] <= len(calls), "indices have a gap"
                if call["index"] == len(calls):
                    calls.append({key: call[key] for key in call if key != "index"})
                else:
                    calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            answer["choices"][0]["finish_reason"] = choice["finish_reason"]
    message["content"] = message["content"] or None
    return answer


def _responses(events: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = [one["sequence_number"] for one in events]
    assert numbers == list(range(len(numbers))), numbers
    done = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    last = events[-1]
    assert last["type"] == "response.completed", last
    answer: dict[str, Any] = last["response"]
    assert answer["output"] == done
    assert sum(one["type"] == "response.created" for one in events) == 1
    return answer


_READ: dict[str, Callable[[list[dict[str, Any]]], dict[str, Any]]] = {
    "anthropic": _anthropic,
    "openai_chat": _chat,
    "openai_responses": _responses,
}
