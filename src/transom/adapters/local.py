"""A model in a GGUF file on this machine, run in this process by llama.cpp (extra `local`: xllamacpp).

`LocalModel` holds the weights and llama.cpp's own server on a loopback port, which nobody without its random key can
use. `LocalProvider` asks it for one filled form an answer (`local_dialect`, `local_form`), greedily, so that the same
window gets the same answer. `LocalCounter` counts with the model's own vocabulary.

One thread by default: two that do not find both cores idle generate slower than one. One request at a time and one
cached window: each request extends the last, and the reused prefix is what `Usage.cached` reports. The server's store
of older prompts is off, since a window that was left is never asked again.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from transom.adapters.local_dialect import DIALECT, Schema, messages, shown_tools, tool_line
from transom.adapters.local_form import form, read_answer
from transom.core.block import Content, Text, ToolCall
from transom.core.canon import plain_text
from transom.core.event import Tool, Usage
from transom.core.wire import Dialect
from transom.errors import BadInput, Overflow, ProviderError, Unavailable, UsageError
from transom.ports import Delta, Measure, Outgoing, Reply

__all__ = ["LocalCounter", "LocalModel", "LocalProvider"]

PATIENCE = 900.0
"""Seconds without a byte before a request is given up: 32k tokens at a 0.5B model's 45 a CPU second are 730."""
_ONE_LINE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""How an answer is written, as the window shows it: models that indent their JSON spend half of their output on it."""
_MEMO_TEXTS = 8192
_MEMO_CHARS = 1024


class _Server(Protocol):
    @property
    def listening_address(self) -> str: ...


class _Details(msgspec.Struct, frozen=True, kw_only=True):
    cached_tokens: int = 0


class _Usage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Details = _Details()


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    delta: _Message = _Message()
    finish_reason: str | None = None


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    message: str = ""
    type: str = ""


class _Piece(msgspec.Struct, frozen=True, kw_only=True):
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    error: _Error | None = None


class _Prompt(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str


class _Tokens(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[int]


_PIECE = msgspec.json.Decoder(_Piece)


class LocalModel:
    """The weights in memory, ready to answer in a window of `context_limit` tokens."""

    def __init__(self, path: str | Path, *, context_limit: int, threads: int = 1) -> None:
        """Loads the file. Raises `BadInput` for what is no model, `UsageError` where the extra is absent."""
        file = Path(path)
        self.name = file.stem
        self.context_limit = context_limit
        self._key = secrets.token_hex(16)
        self._server: _Server | None = _serve(file, context_limit, threads, self._key)
        address = urlsplit(self._server.listening_address)
        self._place = (address.hostname or "127.0.0.1", address.port or 0)
        # A server that is closed before its loop has begun never ends; one that has answered has begun.
        self.ask("/completion", b'{"prompt":"a","n_predict":1,"cache_prompt":false}').read()

    def close(self) -> None:
        """Free the weights and the port. An answer that is still read is closed first: the server waits for it."""
        self._server = None

    def tokens(self, text: str, *, is_prompt: bool = False) -> int:
        """Exact tokens of a text; of a rendered prompt, whose template markers are single tokens."""
        return len(self.tokenize(text, is_prompt=is_prompt))

    def tokenize(self, text: str, *, is_prompt: bool = False) -> list[int]:
        """The tokens themselves, as numbers of the vocabulary."""
        body = {"content": plain_text(text), "add_special": is_prompt, "parse_special": is_prompt}
        with closing(self.ask("/tokenize", json.dumps(body).encode())) as answer:
            return msgspec.json.decode(answer.read(), type=_Tokens).tokens

    def prompt(self, shown: bytes) -> str:
        """The text that chat messages become by the model's own template."""
        with closing(self.ask("/apply-template", b'{"messages":%b}' % shown)) as answer:
            return msgspec.json.decode(answer.read(), type=_Prompt).prompt

    def ask(self, path: str, body: bytes) -> HTTPResponse:
        """One request; closing the answer ends it. Raises `Overflow`, `ProviderError`, `Unavailable`."""
        if self._server is None:
            raise UsageError(f"the local model {self.name} is closed; open it again")
        connection = HTTPConnection(*self._place, timeout=PATIENCE)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}", "Connection": "close"}
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            if answer.status == 200:
                return answer
            said = answer.read()
        except (OSError, HTTPException) as error:
            connection.close()
            raise Unavailable(f"the local model {self.name} does not answer: {error}") from error
        raise _refusal(self.name, said)


class LocalProvider:
    """Asks a `LocalModel`. An answer is one call, or words. A `temperature` above 0 helps a small model out of a loop;
    its chance is seeded by the window, so the same window still gets the same answer and a longer one draws anew."""

    def __init__(self, model: LocalModel, *, temperature: float = 0.0) -> None:
        self._model = model
        self._temperature = temperature

    @property
    def dialect(self) -> Dialect:
        return DIALECT

    def count(self, request: Outgoing) -> int:
        """Exact prompt tokens of a request, by the model's template and vocabulary."""
        return self._model.tokens(self._model.prompt(messages(request.wire)), is_prompt=True)

    def tool_tokens(self, tool: Tool) -> int:
        """What a window shows of a tool: its signature, which is shorter than its schema."""
        return self._model.tokens(tool_line(tool))

    def send(self, request: Outgoing) -> Iterator[Delta | Reply]:
        """The answer as it is generated. What an output limit cuts is words with the stop reason `length`."""
        model = self._model
        prompt = self.count(request)
        room = min(request.max_output_tokens, model.context_limit - prompt)
        if room <= 0:
            raise Overflow(f"the prompt is {prompt} tokens, the window of {model.name} {model.context_limit}")
        tools = [tool for tool in shown_tools(request.wire) if tool.name not in request.withheld]
        schema = form(tools, forced=request.forced_tool, room_tokens=room) if tools else None
        body = _body(request, room, _grammar(schema) if schema else "", self._temperature)
        said: list[str] = []
        stop, usage = "", None
        with closing(model.ask("/v1/chat/completions", body)) as answer:
            for piece in _pieces(answer, model.name):
                for choice in piece.choices:
                    stop = choice.finish_reason or stop
                    if choice.delta.content:
                        said.append(choice.delta.content)
                        yield Delta(kind="call" if tools else "text", text=choice.delta.content)
                usage = piece.usage or usage
        if not stop:
            raise Unavailable(f"the local model {model.name} broke off after {len(said)} tokens")
        text = "".join(said)
        name = hashlib.sha256(request.wire.rolling[request.wire.messages] + text.encode("utf-8", "replace"))
        yield Reply(
            blocks=_blocks(text, f"call_{name.hexdigest()[:16]}", is_form=bool(tools)),
            stop_reason=stop,
            usage=_reported(usage),
            model=model.name,
            response_id=f"local_{name.hexdigest()[:16]}",
        )


class LocalCounter:
    """Counts with the model's own vocabulary; `classify` gives a text's content class."""

    def __init__(self, model: LocalModel, classify: Callable[[str], Content]) -> None:
        self.name: str = model.name
        self._model = model
        self._classify = classify
        self._remembered: Callable[[str], Measure] = lru_cache(_MEMO_TEXTS)(self._fresh)

    def measure(self, text: str) -> Measure:
        return self._remembered(text) if len(text) <= _MEMO_CHARS else self._fresh(text)

    def _fresh(self, text: str) -> Measure:
        return Measure(tokens=self._model.tokens(text) if text else 0, content=self._classify(text))


def _serve(file: Path, context_limit: int, threads: int, key: str) -> _Server:
    try:
        with file.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}; name a GGUF file") from None
    if magic != b"GGUF":
        raise BadInput(f"{file}: is no GGUF file; llama.cpp reads no other")
    if context_limit < 1 or threads < 1:
        raise BadInput(f"{file}: a window of {context_limit} tokens and {threads} threads; both are at least 1")
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError("a local model needs the extra `local`: pip install 'transom[local]'")
    library = importlib.import_module("xllamacpp")
    settings = library.CommonParams()
    settings.model.path = str(file)
    settings.n_ctx = context_limit
    settings.n_parallel = 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.cache_ram_mib = 0
    settings.api_keys = [key]
    settings.verbosity = 0
    settings.ui = False
    settings.endpoint_slots = False
    try:
        server: _Server = library.Server(settings)
    except RuntimeError as error:
        raise BadInput(f"{file}: llama.cpp cannot load it: {error}") from None
    return server


def _grammar(schema: Schema) -> str:
    grammar: str = importlib.import_module("xllamacpp").json_schema_to_grammar(
        json.dumps({"x-guidance": _ONE_LINE, **schema})
    )
    return grammar


def _body(request: Outgoing, room: int, grammar: str, temperature: float) -> bytes:
    rest: dict[str, object] = {
        "max_tokens": room,
        "temperature": temperature,
        "seed": int.from_bytes(request.wire.rolling[request.wire.messages][:4], "big"),
        "cache_prompt": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if grammar:
        rest["grammar"] = grammar
    return b'{"messages":%b,%b' % (messages(request.wire), json.dumps(rest).encode()[1:])


def _pieces(answer: Iterable[bytes], name: str) -> Iterator[_Piece]:
    try:
        for line in answer:
            kind, _, data = line.strip().partition(b":")
            if kind not in {b"data", b"error"} or data.strip() == b"[DONE]":
                continue
            piece = _PIECE.decode(data)
            if piece.error is not None:
                raise Unavailable(f"the local model {name} failed: {piece.error.message}")
            yield piece
    except (OSError, HTTPException, msgspec.DecodeError) as error:
        raise Unavailable(f"the local model {name} broke off: {error}") from error


def _refusal(name: str, said: bytes) -> ProviderError:
    try:
        error = _PIECE.decode(said).error or _Error()
    except msgspec.DecodeError:
        error = _Error(message=said.decode("utf-8", "replace"))
    if error.type == "exceed_context_size_error":
        return Overflow(error.message)
    return ProviderError(f"the local model {name} refused the request: {error.message}")


def _blocks(text: str, call_id: str, *, is_form: bool) -> tuple[Text | ToolCall, ...]:
    filled = read_answer(text) if is_form else None
    if filled is not None and filled.tool:
        return (ToolCall(call_id=call_id, name=filled.tool, arguments=bytes(filled.arguments).decode()),)
    said = text if filled is None else filled.say
    return (Text(text=said),) if said else ()


def _reported(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    cached = usage.prompt_tokens_details.cached_tokens
    return Usage(uncached=usage.prompt_tokens - cached, cached=cached, output=usage.completion_tokens)
