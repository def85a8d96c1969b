"""The clients of `bench.gateway`: each keeps its history as raw JSON and sends all of it with every request, two
messages longer than the one before.

The Messages API is written as Claude Code writes it: `messages` before `system` and `tools`, and cache marks that move
with the two newest messages of the user. The other two are written as their usual clients do.
"""

from __future__ import annotations

import http.client
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import cycle
from time import perf_counter, perf_counter_ns
from typing import Any
from urllib.parse import urlsplit

from bench.workload import conversation
from transom.core.block import ToolResultRaw
from transom.core.event import ToolReturned
from transom.testing.client import _READ, _events
from transom.testing.model_server import APIS

__all__ = ["Client", "Timed"]

_SYSTEM = "You are an agent that edits a repository. Read before you write, and test what you changed. " * 80
_TOOLS = [f"tool_{number}" for number in range(12)]
_ABOUT = "Reads a file of the repository and gives its lines with their numbers. " * 20
_SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": "Of the file."}}}
_TEXTS = 620
"""Messages that results are drawn from, about 1 MB of them; longer histories tell them again."""
_MARK = {"type": "ephemeral"}
_END = b"}]}"
_MARKED = b',"cache_control":{"type":"ephemeral"}}]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """An answer: its bytes, seconds to its first byte and to its end, and each read with the moment it came."""

    data: bytes
    first: float
    seconds: float
    reads: tuple[tuple[int, bytes], ...]


@dataclass(slots=True, kw_only=True)
class Client:
    """One history, of at least `size` bytes to begin with. Two clients of the same name, size and seed send the same
    bytes, wherever they send them."""

    api: str
    base_url: str
    name: str
    size: int
    seed: int
    is_strict: bool = True
    """What comes is the answer to the letter. Others write answers anew; then the history goes on as if it were."""
    elements: list[bytes] = field(default_factory=list)
    _results: Iterator[str] = field(init=False)
    _http: http.client.HTTPConnection = field(init=False)
    _head: tuple[bytes, bytes] = field(init=False)

    def __post_init__(self) -> None:
        texts = _results(self.seed)
        first = zlib.crc32(self.name.encode()) % len(texts)
        self._results = cycle((*texts[first:], *texts[:first]))
        self._head = _head(self.api)
        where = urlsplit(self.base_url)
        assert where.hostname is not None
        self._http = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
        words = "Mend what is broken in this repository. Never push."
        said = [{"type": "text", "text": words}] if self.api == "anthropic" else words
        self.elements.append(_json({"role": "user", "content": said}))
        held = 0
        while held < self.size:
            before = len(self.elements)
            self._grow(f"{self.name}_{before}", "I look at the next file. ", {"path": "src/a.py"})
            held += sum(len(one) for one in self.elements[before:])

    def close(self) -> None:
        self._http.close()

    def body(self) -> bytes:
        elements = self.elements
        if self.api == "anthropic":
            elements = elements.copy()
            for place in range(len(elements) - 1, max(-1, len(elements) - 4), -2):
                elements[place] = elements[place][: -len(_END)] + _MARKED
        return b"".join((self._head[0], b",".join(elements), self._head[1]))

    def ask(self, pieces: int = 0) -> Timed:
        """Send the history, and read the answer as it comes. `pieces`: of a slow answer (`bench.gateway_upstream`)."""
        headers = {"content-type": "application/json", "session-id": self.name, "x-api-key": "k"}
        if pieces:
            headers["x-bench-pieces"] = str(pieces)
        reads: list[tuple[int, bytes]] = []
        body = self.body()
        start = perf_counter()
        self._http.request("POST", APIS[self.api], body, headers)
        answer = self._http.getresponse()
        while data := answer.read1(65536):
            reads.append((perf_counter_ns(), data))
        seconds = perf_counter() - start
        answer.close()
        data = b"".join(piece for _, piece in reads)
        assert answer.status == 200, (answer.status, data[:500])
        return Timed(data=data, first=reads[0][0] / 1e9 - start, seconds=seconds, reads=tuple(reads))

    def step(self) -> Timed:
        """One request; the answer and the result of its call are in the history then."""
        timed = self.ask()
        if self.is_strict:
            self.take(timed.data)
        else:
            self._grow(f"{self.name}_{len(self.elements)}", "I look at the next file. ", {"path": "src/a.py"})
        return timed

    def take(self, data: bytes) -> None:
        """Put an answer into the history, and the result of its call behind it."""
        answer = _READ[self.api](_events(data))
        match self.api:
            case "anthropic":
                words, call = answer["content"]
                self._grow(call["id"], words["text"], call["input"])
            case "openai_chat":
                message = answer["choices"][0]["message"]
                (call,) = message["tool_calls"]
                self._grow(call["id"], message["content"], json.loads(call["function"]["arguments"]))
            case _:
                words, call = answer["output"]
                self._grow(call["call_id"], words["content"][0]["text"], json.loads(call["arguments"]))

    def _grow(self, call_id: str, text: str, arguments: dict[str, str]) -> None:
        result = next(self._results)
        new: list[dict[str, Any]]
        match self.api:
            case "anthropic":
                call = {"type": "tool_use", "id": call_id, "name": "read", "input": arguments}
                block = {"type": "tool_result", "tool_use_id": call_id, "content": result}
                new = [
                    {"role": "assistant", "content": [{"type": "text", "text": text}, call]},
                    {"role": "user", "content": [block]},
                ]
            case "openai_chat":
                function = {"name": "read", "arguments": json.dumps(arguments)}
                calls = [{"id": call_id, "type": "function", "function": function}]
                new = [
                    {"role": "assistant", "content": text, "tool_calls": calls},
                    {"role": "tool", "tool_call_id": call_id, "content": result},
                ]
            case _:
                words = {"type": "output_text", "text": text, "annotations": []}
                new = [
                    {"type": "message", "role": "assistant", "content": [words]},
                    {"type": "function_call", "call_id": call_id, "name": "read", "arguments": json.dumps(arguments)},
                    {"type": "function_call_output", "call_id": call_id, "output": result},
                ]
        self.elements.extend(map(_json, new))


def _head(api: str) -> tuple[bytes, bytes]:
    """What stands before a history and behind it."""
    system = _json(_SYSTEM)
    match api:
        case "anthropic":
            tools = [{"name": name, "description": _ABOUT, "input_schema": _SCHEMA} for name in ("read", *_TOOLS)]
            text = _json([{"type": "text", "text": _SYSTEM, "cache_control": _MARK}])
            end = b'],"system":%b,"tools":%b,"max_tokens":32000,"stream":true}' % (text, _json(tools))
            return b'{"model":"claude-sonnet-4-5","messages":[', end
        case "openai_chat":
            functions = [{"name": name, "description": _ABOUT, "parameters": _SCHEMA} for name in ("read", *_TOOLS)]
            tools = [{"type": "function", "function": function} for function in functions]
            end = b'],"tools":%b,"stream":true,"stream_options":{"include_usage":true}}' % _json(tools)
            return b'{"model":"gpt-5","messages":[{"role":"system","content":%b},' % system, end
        case _:
            functions = [{"name": name, "description": _ABOUT, "parameters": _SCHEMA} for name in ("read", *_TOOLS)]
            tools = [{"type": "function", **function} for function in functions]
            end = b'],"tools":%b,"store":false,"stream":true}' % _json(tools)
            return b'{"model":"gpt-5","instructions":%b,"input":[' % system, end


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@lru_cache(maxsize=1)
def _results(seed: int) -> tuple[str, ...]:
    found = []
    for draft in conversation(_TEXTS, seed, reports=False):
        if isinstance(draft.fact, ToolReturned):
            (block,) = draft.fact.blocks
            assert isinstance(block, ToolResultRaw)
            found.append(block.text)
    return tuple(found)
