"""A model behind HTTP on this machine: the other side of a gateway, in the three APIs, streamed or not.

What it says is decided by a function of the request; what it was asked is kept as it came. It counts four bytes a
token. One that caches reads what the JSON of a prompt shares with that of any earlier one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, TypeAlias

__all__ = ["APIS", "Call", "ModelServer", "Said", "words_of"]

APIS = {
    "anthropic": "/v1/messages",
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)


Said: TypeAlias = "Sequence[str | Call]"
"""An answer: words and calls, in order."""


def words_of(body: Mapping[str, Any]) -> str:
    """All of a request's history as text, for a `decide` to look at."""
    return json.dumps(body.get("messages", body.get("input")), ensure_ascii=False)


class ModelServer:
    """`decide` is given the decoded request. `window`: tokens above which a request is refused as too long. `caches`:
    whether it says what it read from a cache."""

    def __init__(self, decide: Callable[[dict[str, Any]], Said], *, window: int = 0, caches: bool = False) -> None:
        self._decide, self._window, self._caches = decide, window, caches
        self._prompts: list[bytes] = []
        self.asked: list[tuple[str, Mapping[str, str], bytes]] = []
        """(path, headers with lower-case names, body)"""
        self.faults: list[tuple[int, bytes]] = []
        """(status, body) for the next requests instead of an answer; status 0: the connection is cut after the body."""
        self._made = 0
        self._sizes: dict[str, int] = {}
        """Tokens of the history behind each response, for requests that name one."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Of the requests that have one: whoever waits for a server at this port may have asked by GET."""
        return [json.loads(body) for _, _, body in self.asked if body]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with outer._lock:
                    outer.asked.append((self.path, headers, body))
                    fault = outer.faults.pop(0) if outer.faults else None
                if fault is not None:
                    outer._give(self, *fault)
                else:
                    outer._answer(self, body)

            def do_GET(self) -> None:
                with outer._lock:
                    outer.asked.append((self.path, {}, b""))
                outer._give(self, 200, b'{"data":[]}')

            def log_message(self, *args: object) -> None:
                """A test's output is the test's."""

        return Handler

    def _give(self, handler: BaseHTTPRequestHandler, status: int, data: bytes, media: str = "application/json") -> None:
        handler.send_response(status or 200)
        handler.send_header("content-type", media if status else "text/event-stream")
        handler.send_header("content-length", str(len(data) + (0 if status else 100)))
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = not status

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        asked = json.loads(body)
        tokens = len(body) // 4 + self._sizes.get(asked.get("previous_response_id", ""), 0)
        path = handler.path.partition("?")[0]
        if self._window and tokens > self._window:
            self._give(handler, 400, _too_long(path, tokens, self._window))
            return
        said = self._decide(asked)
        prompt = _prompt(asked) if self._caches else b""
        with self._lock:
            cached = max((_shared(prompt, other) for other in self._prompts), default=0) // 4
            self._prompts.append(prompt)
            self._made += 1
            number = self._made
            self._sizes[f"resp_{number}"] = tokens + 9
        write = {"/v1/messages": _anthropic, "/v1/chat/completions": _chat, "/v1/responses": _responses}[path]
        whole, events = write(number, said, tokens, cached)
        if asked.get("stream"):
            self._give(handler, 200, b"".join(events), "text/event-stream; charset=utf-8")
        else:
            self._give(handler, 200, json.dumps(whole).encode())


def _prompt(asked: Mapping[str, Any]) -> bytes:
    """What of a request enters a cache's key; its marks do not."""
    parts = (asked.get(name) for name in ("tools", "system", "instructions", "messages", "input"))
    return json.dumps([_unmarked(part) for part in parts if part], separators=(",", ":")).encode()


def _shared(one: bytes, other: bytes) -> int:
    """Bytes that both begin with."""
    least = min(len(one), len(other))
    return next((place for place in range(least) if one[place] != other[place]), least)


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(one) for one in value]
    if isinstance(value, dict):
        return {name: _unmarked(one) for name, one in value.items() if name != "cache_control"}
    return value


def _too_long(path: str, tokens: int, window: int) -> bytes:
    if path == "/v1/messages":
        message = f"prompt is too long: {tokens} tokens > {window} maximum"
        return json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).encode()
    message = f"This model's maximum context length is {window} tokens."
    return json.dumps({"error": {"message": message, "code": "context_length_exceeded", "type": "x"}}).encode()


def _event(kind: str, data: Mapping[str, object]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


_Made: TypeAlias = "tuple[dict[str, Any], list[bytes]]"


def _anthropic(number: int, said: Said, tokens: int, cached: int = 0) -> _Made:
    content: list[dict[str, Any]] = []
    for place, one in enumerate(said):
        if isinstance(one, str):
            content.append({"type": "text", "text": one})
        else:
            call_id = f"toolu_{number}_{place}"
            content.append({"type": "tool_use", "id": call_id, "name": one.name, "input": dict(one.arguments)})
    stop = "tool_use" if any(isinstance(one, Call) for one in said) else "end_turn"
    usage = {"input_tokens": tokens - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}
    usage["output_tokens"] = 9
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m1", "stop_sequence": None}
    opened: dict[str, Any] = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    return {**message, "content": content, "stop_reason": stop, "usage": usage}, [
        _event("message_start", {"type": "message_start", "message": opened}),
        *_anthropic_blocks(content),
        _event(
            "message_delta",
            {
                "type": "message_delta",
                "delta": {"stop_reason": stop, "stop_sequence": None},
                "usage": {"output_tokens": 9},
            },
        ),
        _event("message_stop", {"type": "message_stop"}),
    ]


def _anthropic_blocks(content: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    for index, block in enumerate(content):
        if block["type"] == "text":
            opened: dict[str, Any] = {"type": "text", "text": ""}
            delta: dict[str, Any] = {"type": "text_delta", "text": block["text"]}
        else:
            opened = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        place = {"index": index}
        yield _event("content_block_start", {"type": "content_block_start", **place, "content_block": opened})
        yield _event("content_block_delta", {"type": "content_block_delta", **place, "delta": delta})
        yield _event("content_block_stop", {"type": "content_block_stop", **place})


def _chat(number: int, said: Said, tokens: int, cached: int = 0) -> _Made:
    text = "".join(one for one in said if isinstance(one, str))
    calls = [
        {
            "id": f"call_{number}_{place}",
            "type": "function",
            "function": {"name": one.name, "arguments": json.dumps(dict(one.arguments))},
        }
        for place, one in enumerate(said)
        if isinstance(one, Call)
    ]
    finish = "tool_calls" if calls else "stop"
    usage: dict[str, Any] = {"prompt_tokens": tokens, "completion_tokens": 9, "total_tokens": tokens + 9}
    if cached:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    frame = {"id": f"chatcmpl-{number}", "created": 1, "model": "m1"}
    message = {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
    whole: dict[str, Any] = {**frame, "object": "chat.completion", "usage": usage}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas.extend({"content": piece} for piece in (text[:5], text[5:]) if piece)
    deltas.extend({"tool_calls": [{"index": index, **call}]} for index, call in enumerate(calls))
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    chunks.append({"choices": [], "usage": usage})
    events = [
        f"data: {json.dumps({**frame, 'object': 'chat.completion.chunk', **chunk})}\n\n".encode() for chunk in chunks
    ]
    return whole, [*events, b"data: [DONE]\n\n"]


def _responses(number: int, said: Said, tokens: int, cached: int = 0) -> _Made:
    output: list[dict[str, Any]] = []
    for place, one in enumerate(said):
        if isinstance(one, str):
            part = {"type": "output_text", "text": one, "annotations": []}
            output.append({"type": "message", "id": f"msg_{number}_{place}", "role": "assistant", "content": [part]})
        else:
            item = {"type": "function_call", "id": f"fc_{number}_{place}", "call_id": f"call_{number}_{place}"}
            output.append({**item, "name": one.name, "arguments": json.dumps(dict(one.arguments))})
        output[-1]["status"] = "completed"
    usage: dict[str, Any] = {"input_tokens": tokens, "output_tokens": 9, "total_tokens": tokens + 9}
    if cached:
        usage["input_tokens_details"] = {"cached_tokens": cached}
    frame = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "m1", "tools": []}
    whole = {**frame, "status": "completed", "output": output, "usage": usage}
    opened = {**frame, "status": "in_progress", "output": []}
    steps: list[dict[str, Any]] = [
        {"type": "response.created", "response": opened},
        {"type": "response.in_progress", "response": opened},
    ]
    for index, item in enumerate(output):
        steps.extend(_item_steps(index, item))
    steps.append({"type": "response.completed", "response": whole})
    return whole, [_event(one["type"], {**one, "sequence_number": at}) for at, one in enumerate(steps)]


def _item_steps(index: int, item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"output_index": index, "item_id": item["id"]}
    is_call = item["type"] == "function_call"
    opened = {**item, "status": "in_progress", **({"arguments": ""} if is_call else {"content": []})}
    yield {"type": "response.output_item.added", "output_index": index, "item": opened}
    if is_call:
        yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
    else:
        part, text = {**place, "content_index": 0}, item["content"][0]["text"]
        empty = {"type": "output_text", "text": "", "annotations": []}
        yield {"type": "response.content_part.added", **part, "part": empty}
        yield {"type": "response.output_text.delta", **part, "delta": text}
        yield {"type": "response.output_text.done", **part, "text": text}
        yield {"type": "response.content_part.done", **part, "part": item["content"][0]}
    yield {"type": "response.output_item.done", "output_index": index, "item": dict(item)}
