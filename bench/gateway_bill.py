"""What a gateway does to the prefix and the bill of real sessions. `python -m bench.gateway_bill PATH…` plays each
recorded session as a client that sends its whole history with every step, through each gateway in turn, and looks at
what came upstream. `--limit` (may be given again) is the window in tokens, `--steps` how far a session is played,
`--api` the API that is spoken. Peers are measured if their commands are on the PATH (`bench.gateway_peers`).

The model is the recording: it answers each step as it did. Asked for a handoff or a summary it gives one of a fixed
size, or fails in one of four ways: it says nothing, two words, an error, or (`deaf`) works on as if nobody had asked.
One that fails does not heed a mere reminder either. Of the control, `unasked`, the gateway asks nothing, since the
client has a tool of that name itself. Quality is not judged here. An error is tried again, as clients do.

Sizes are bytes of the request in canonical form (tools, system text, messages; marks left out). Cost is of input alone
and relative to the same session sent whole: what an earlier request began with is read at the price of cached input,
all else written (`claude-sonnet-4.5` in the price table). A break is a request of the main loop that does not begin
with all of the one before.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from bench.gateway import serving
from bench.gateway_peers import PEERS, peer
from transom import compose
from transom.adapters import provider_anthropic, provider_openai_chat
from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_writing import Reach
from transom.core.event import HostSaid, ModelReplied, RequestSent, SessionOpened, ToolReturned, UserSaid
from transom.core.pricing import choose_price
from transom.core.projection import project
from transom.core.wire import groups
from transom.gateway.face import Face
from transom.gateway.face_anthropic import AnthropicFace
from transom.gateway.face_openai_chat import OpenAIChatFace
from transom.gateway.reading import fields_of, items_of, listed
from transom.importers.load import load
from transom.testing.model_server import APIS

__all__ = ["FAILURES", "Bill", "Recording", "recorded", "replayed"]

FAILURES = ("", "unasked", "empty", "words", "error", "deaf")
"""How the model fails to hand over or to sum up; the first is not at all, of the second it is not asked to."""
_TRIES = 5
_PRICE = "claude-sonnet-4.5"
_HISTORY = (SessionOpened, UserSaid, HostSaid, ModelReplied, ToolReturned)
_SYSTEM = "You are an agent that edits a repository. Read before you write, and test what you changed. " * 80
_REMINDED = re.compile(r"tokens are left in this window")
_DEMANDED = re.compile(r"[Tt]he window is full|This window is full|Last request of this window")
_SUMMARY = (
    "RULES: none beyond the user's words. STATE: half of the work is done and its tests pass. OPEN: the rest. " * 9
)
_HANDOFF = {
    "handoff": {"requirements": [], "inferences": [_SUMMARY], "conflicts": [], "unverified": []},
    "related_files": [],
}
_LOOKED_AT = 4
"""Earlier requests in which a prefix is looked for: a side call stands between two of the main loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A session as its messages, raw; `steps` are the places of the model's."""

    name: str
    messages: tuple[bytes, ...]
    steps: tuple[int, ...]


def recorded(path: Path, api: str, steps: int) -> Recording:
    """The longest session at a path, whatever compactions its client made: behind a gateway it makes none."""
    log = MemoryLog()
    with tempfile.TemporaryDirectory(prefix="bench-bill-") as folder:
        kept = compose.store(Path(folder))
        load(path, log=log, blobs=kept.blobs, counter=compose.counter())
        session_id = max(log.sessions(), key=lambda row: row.events).session_id
        state = project(event for event in log.read(session_id) if isinstance(event.fact, _HISTORY))
        reach = Reach(origin="bench", blobs=kept.blobs, keeps_ids=True)  # its own thoughts are no API's
        write = (provider_anthropic if api == "anthropic" else provider_openai_chat).dialect(reach).message
        items = state.window.items
        shown = [(items[first].role == "assistant", write(items[first:end])) for first, end in groups(items)]
        kept.close()
    messages: list[bytes] = []
    places: list[int] = []
    for is_reply, data in shown:
        made = items_of(b"[%b]" % data)
        if is_reply and made and places and places[-1] == len(messages) - 1:
            messages[-1] = _joined(messages[-1], *made)  # two replies in a row come back as one answer
            continue
        if is_reply and made and messages and len(places) < steps:
            places.append(len(messages))
        messages.extend(made)
    return Recording(name=path.name.partition(".")[0], messages=tuple(messages), steps=tuple(places))


def _joined(*replies: bytes) -> bytes:
    made: dict[str, Any] = {}
    for reply in replies:
        for name, value in json.loads(reply).items():
            before = made.get(name)
            if name == "role" or before is None:
                made[name] = value
            elif value is not None:
                made[name] = before + value
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode()


# -- the model


@dataclass(slots=True)
class _Seen:
    """A request that came upstream."""

    segments: list[bytes]
    is_main: bool


@dataclass(slots=True)
class Model:
    """The other side. `answer` is the recorded message to give next."""

    api: str
    failure: str
    answer: bytes = b""
    seen: list[_Seen] = field(default_factory=list)
    _server: ThreadingHTTPServer = field(init=False)

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, body: bytes) -> tuple[int, bytes]:
        fields = fields_of(body)
        messages = items_of(fields["messages"])
        is_main = b'"tools"' in body and bool(listed(fields, "tools"))
        said_last = messages[-1].decode()
        heard = _DEMANDED.search(said_last) or (not self.failure and _REMINDED.search(said_last))
        asks = is_main and b'"new_context"' in fields["tools"] and bool(heard)
        forced = b'"new_context"' in fields.get("tool_choice", b"")
        self.seen.append(_Seen(_segments(self.api, fields), is_main and not asks and not forced))
        if is_main and not asks and not forced:
            return 200, self._written(self.answer, len(body))
        if self.failure == "deaf":
            return 200, self._written(self.answer if is_main else _said(self.api, ""), len(body))
        if self.failure == "error":
            return 500, b'{"type":"error","error":{"type":"api_error","message":"no"}}'
        words = {"empty": "", "words": "all good"}.get(self.failure, _SUMMARY)
        handoff = _HANDOFF if words == _SUMMARY else {}
        said = _said(self.api, words)
        if is_main and self.failure != "words":
            said = _called(self.api, f"call_{len(self.seen)}", handoff)
        return 200, self._written(said, len(body))

    def _written(self, message: bytes, size: int) -> bytes:
        made = json.loads(message)
        if self.api == "anthropic":
            stop = "tool_use" if b'"type":"tool_use"' in message else "end_turn"
            usage = {"input_tokens": size // 4, "output_tokens": len(message) // 4}
            whole = {"id": f"msg_{len(self.seen)}", "type": "message", "model": "m1", **made, "stop_reason": stop}
        else:
            stop = "tool_calls" if made.get("tool_calls") else "stop"
            usage = {"prompt_tokens": size // 4, "completion_tokens": len(message) // 4}
            usage["total_tokens"] = sum(usage.values())
            choice = {"index": 0, "message": made, "finish_reason": stop}
            whole = {"id": f"c{len(self.seen)}", "object": "chat.completion", "created": 1, "model": "m1"}
            whole["choices"] = [choice]
        return json.dumps({**whole, "usage": usage}, ensure_ascii=False).encode()


_FACES: dict[str, Face] = {"anthropic": AnthropicFace(), "openai_chat": OpenAIChatFace()}


def _segments(api: str, fields: dict[str, bytes]) -> list[bytes]:
    """The prompt in the order in which providers cache it."""
    system = fields.get("system", b"")
    return [fields.get("tools", b""), system, *(_canonical(api, one) for one in items_of(fields["messages"]))]


@lru_cache(maxsize=1 << 14)
def _canonical(api: str, element: bytes) -> bytes:
    """One object for a message, however often it comes: hundreds of requests are held."""
    return _FACES[api].canonical(element)


def _said(api: str, words: str) -> bytes:
    content: object = [{"type": "text", "text": words}] if api == "anthropic" else words
    return json.dumps({"role": "assistant", "content": content}).encode()


def _called(api: str, call_id: str, arguments: dict[str, Any]) -> bytes:
    if api == "anthropic":
        content = [{"type": "tool_use", "id": call_id, "name": "new_context", "input": arguments}]
        return json.dumps({"role": "assistant", "content": content}, separators=(",", ":")).encode()
    function = {"name": "new_context", "arguments": json.dumps(arguments)}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return json.dumps({"role": "assistant", "content": None, "tool_calls": calls}).encode()


def _handler(model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            status, data = model.reply(body)
            self._give(status, data)

        def do_GET(self) -> None:
            self._give(200, b'{"object":"list","data":[{"id":"m1","object":"model"}]}')

        def _give(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """The table is all that is said."""

    return Handler


# -- the client


def replayed(recording: Recording, base_url: str, model: Model) -> Iterator[int]:
    """Send the session step by step; the status of each answer."""
    where = urlsplit(base_url)
    assert where.hostname is not None
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
    headers = {"content-type": "application/json", "x-api-key": "k", "authorization": "Bearer k"}
    for place in recording.steps:
        model.answer = recording.messages[place]
        body = _body(
            model.api, recording.messages[:place], ["read", "new_context"] if model.failure == "unasked" else ["read"]
        )
        for _ in range(_TRIES):
            connection.request("POST", APIS[model.api], body, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status < 500:
                break
        yield answer.status
    connection.close()


def _body(api: str, messages: Sequence[bytes], tools: Sequence[str] = ("read",)) -> bytes:
    history, system, schema = b",".join(messages), json.dumps(_SYSTEM).encode(), {"type": "object"}
    if api == "anthropic":
        offered = [{"name": name, "description": "Reads a file.", "input_schema": schema} for name in tools]
        shown = json.dumps(offered).encode()
        return b'{"model":"m1","max_tokens":8000,"system":%b,"tools":%b,"messages":[%b]}' % (system, shown, history)
    functions = [{"name": name, "description": "Reads a file.", "parameters": schema} for name in tools]
    shown = json.dumps([{"type": "function", "function": one} for one in functions]).encode()
    return b'{"model":"m1","messages":[{"role":"system","content":%b},%b],"tools":%b}' % (system, history, shown)


# -- the bill


@dataclass(slots=True, kw_only=True)
class Bill:
    """In bytes. `kept` of `began` bytes of main requests stood at the start of the next one. `failed`: steps without a
    good answer, or with one that nobody asked the model for."""

    sent: int = 0
    cost: float = 0.0
    kept: int = 0
    began: int = 0
    breaks: int = 0
    beside: int = 0
    failed: int = 0


def bill(requests: Sequence[_Seen]) -> Bill:
    price = choose_price(compose.prices(), _PRICE)
    read, written = price.cached / price.input, price.write / price.input
    made = Bill()
    main: list[bytes] = []
    for number, one in enumerate(requests):
        size = sum(map(len, one.segments))
        before = requests[max(0, number - _LOOKED_AT) : number]
        cached = max((_shared(one.segments, other.segments) for other in before), default=0)
        made.sent += size
        made.cost += cached * read + (size - cached) * written
        if not one.is_main:
            made.beside += 1
            continue
        began = sum(map(len, main))
        kept = _shared(one.segments, main)
        made.began, made.kept, made.breaks = made.began + began, made.kept + kept, made.breaks + (kept < began)
        main = one.segments
    return made


def _shared(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    size = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        size += len(one)
    return size


def _whole(recording: Recording, api: str) -> Bill:
    """The session without a gateway, in a window without end."""
    bodies = (fields_of(_body(api, recording.messages[:place])) for place in recording.steps)
    return bill([_Seen(_segments(api, fields), True) for fields in bodies])


def _declared(store: Path) -> tuple[int, int]:
    """Of a gateway's log: requests whose prefix was given up for a named reason, and those without one."""
    misses = drifts = 0
    with compose.store(store) as kept:
        for row in kept.log.sessions():
            facts = (event.fact for event in kept.log.read(row.session_id))
            _, *later = (fact for fact in facts if isinstance(fact, RequestSent))  # nothing stands before the first
            misses += sum(fact.verdict == "miss" for fact in later)
            drifts += sum(fact.verdict == "drift" for fact in later)
    return misses, drifts


# -- the table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_bill", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--api", default="openai_chat", choices=list(_FACES))
    parser.add_argument("--limit", type=int, action="append", help="tokens; 64000 and 128000 if none is given")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--policy", action="append", help="rollover and rollover-cost if none is given")
    parser.add_argument("--failures", action="store_true", help="each way in which a handoff or summary fails")
    options = parser.parse_args()
    table = Table(title="Requests as they came upstream")
    for name in ("session", "limit", "gateway", "sent", "cost", "kept", "breaks", "declared", "beside", "failed"):
        table.add_column(name, justify="left" if name in {"session", "gateway"} else "right")
    for path in options.paths:
        recording = recorded(path, options.api, options.steps)
        whole = _whole(recording, options.api)
        name = f"{recording.name[:24]}, {len(recording.steps)} steps"
        table.add_row(name, "-", "none", "1", "1", "1.000", "0", "-", "0", "0")
        for limit in options.limit or [64_000, 128_000]:
            for failure in FAILURES if options.failures else FAILURES[:1]:
                for label, found, declared in _arms(recording, options, limit, failure):
                    shown = f"{found.sent / whole.sent:.3f}", f"{found.cost / whole.cost:.3f}"
                    kept = f"{found.kept / found.began:.3f}" if found.began else "-"
                    counts = map(str, (found.breaks, declared, found.beside, found.failed))
                    table.add_row("", f"{limit:,}", label, *shown, kept, *counts)
    Console(width=150).print(table)


def _arms(
    recording: Recording, options: argparse.Namespace, limit: int, failure: str
) -> Iterator[tuple[str, Bill, str]]:
    suffix = f", {failure}" if failure else ""
    for policy in options.policy or ["rollover", "rollover-cost"]:
        with tempfile.TemporaryDirectory(prefix="bench-bill-") as folder:
            found = _run(recording, Model(options.api, failure), f"transom:{policy}", limit, Path(folder))
            misses, drifts = _declared(Path(folder))
        yield f"transom {policy}{suffix}", found, f"{misses}+{drifts}" if drifts else str(misses)
    for name in PEERS if options.api == "openai_chat" else ():
        with tempfile.TemporaryDirectory(prefix="bench-bill-") as folder:
            found = _run(recording, Model(options.api, failure), name, limit, Path(folder))
        yield f"{name}{suffix}", found, "-"


def _run(recording: Recording, model: Model, name: str, limit: int, folder: Path) -> Bill:
    with ExitStack() as kept:
        kept.callback(model.close)
        policy = name.partition(":")[2]
        served = (
            serving(model.base_url, limit, policy=policy, store=folder)
            if policy
            else peer(name, model.base_url, limit, folder)
        )
        base_url = kept.enter_context(served).base_url
        failed = came = 0
        for status in replayed(recording, base_url, model):
            failed += status != 200 or len(model.seen) == came
            came = len(model.seen)
    made = bill(model.seen)
    made.failed = failed
    return made


if __name__ == "__main__":
    main()
