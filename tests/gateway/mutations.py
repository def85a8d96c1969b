"""Requests and answers as agents and providers write them, and what may become of them: all of it from a seed.

`History` is a client's, in one of the three APIs, with the blocks and items that real clients send. `bent` and `torn`
change a JSON value and its bytes, `frames` and `shaken` write an answer as a stream and disturb that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

__all__ = ["Answer", "History", "Json", "bent", "frames", "shaken", "torn", "whole"]

Json: TypeAlias = Any
_TOOLS = ("read", "run")
_PAGE = "a line of a file with words in it, some of them long\n"
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@dataclass(slots=True)
class Answer:
    """What a model says: (kind, text) or ("call", name, arguments) in order."""

    parts: list[tuple[str, ...]]
    number: int = 0

    def calls(self) -> Iterator[tuple[str, str, str]]:
        """Id, name, arguments."""
        for place, part in enumerate(self.parts):
            if part[0] == "call":
                yield f"call_{self.number}_{place}", part[1], part[2]


@dataclass(slots=True)
class History:
    """`mark` stands in everything that is said in it, but in the first words, which many say."""

    api: str
    mark: str
    rng: Random
    is_streamed: bool
    headers: dict[str, str]
    items: list[Json] = field(default_factory=list)
    model: str = "m1"
    is_lead: bool = False

    def say(self, text: str) -> None:
        content: Json = text
        if self.rng.random() < 0.3:
            kind = "input_text" if self.api == "openai_responses" else "text"
            content = [{"type": kind, "text": text}]
            if self.rng.random() < 0.3:
                content.append(self._image())
        self.items.append({"role": "user", "content": content})

    def _image(self) -> Json:
        match self.api:
            case "anthropic":
                return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}}
            case "openai_chat":
                return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PIXEL}"}}
            case _:
                return {"type": "input_image", "image_url": f"data:image/png;base64,{_PIXEL}"}

    def take(self, answer: Answer) -> None:
        """The model's answer, as the client resends it, and the results of its calls."""
        match self.api:
            case "anthropic":
                self.items.append({"role": "assistant", "content": _anthropic_content(answer)})
            case "openai_chat":
                self.items.append(_chat_message(answer))
            case _:
                self.items.extend(_responses_items(answer))
        results = [
            (one, f"{self.mark} {name} says {_PAGE * self.rng.choice((1, 3, 40))}") for one, name, _ in answer.calls()
        ]
        if not results:
            self.say(f"{self.mark} Go on with {self.rng.randrange(99)}.")
        elif self.api == "anthropic":
            blocks: list[Json] = [{"type": "tool_result", "tool_use_id": one, "content": text} for one, text in results]
            if self.rng.random() < 0.3:
                blocks[0]["content"] = [{"type": "text", "text": blocks[0]["content"]}]
            if self.rng.random() < 0.2:
                blocks.append({"type": "text", "text": f"<system-reminder>{self.mark} be brief</system-reminder>"})
            self.items.append({"role": "user", "content": blocks})
            if self.rng.random() < 0.1:
                self.items.append({"role": "system", "content": f"{self.mark} the mode changed", "output_config": {}})
        elif self.api == "openai_chat":
            self.items.extend({"role": "tool", "tool_call_id": one, "content": text} for one, text in results)
        else:
            self.items.extend({"type": "function_call_output", "call_id": one, "output": text} for one, text in results)
            if self.rng.random() < 0.1:
                self.items.append({"type": "configuration_update", "reasoning": {"effort": "low"}})

    def request(self) -> dict[str, Json]:
        rng = self.rng
        made: dict[str, Json] = {"model": self.model, "stream": self.is_streamed}
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        match self.api:
            case "anthropic":
                items = json.loads(json.dumps(self.items))
                if isinstance(items[-1]["content"], list) and items[-1]["content"]:
                    items[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
                made |= {"messages": items, "max_tokens": 500}
                made["system"] = [{"type": "text", "text": "You work.", "cache_control": {"type": "ephemeral"}}]
                made["tools"] = [{"name": name, "description": name, "input_schema": schema} for name in _TOOLS]
                made["metadata"] = {"user_id": json.dumps({"session_id": "s"})}
                made["context_management"] = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
            case "openai_chat":
                made["messages"] = [{"role": "system", "content": "You work."}, *self.items]
                functions = [{"name": name, "description": name, "parameters": schema} for name in _TOOLS]
                made["tools"] = [{"type": "function", "function": one} for one in functions]
                if self.is_streamed:
                    made["stream_options"] = {"include_usage": True}
            case _:
                lead: list[Json] = [{"type": "message", "role": "developer", "content": "You work."}]
                tools = [{"type": "function", "name": name, "parameters": schema} for name in _TOOLS]
                if self.is_lead:
                    lead.insert(0, {"type": "additional_tools", "role": "developer", "tools": tools})
                else:
                    made["tools"] = [*tools, {"type": "custom", "name": "apply_patch"}, {"type": "web_search"}]
                made |= {"input": [*lead, *self.items], "store": False, "include": ["reasoning.encrypted_content"]}
        if rng.random() < 0.2:
            made["a_field_of_tomorrow"] = {"x": [1, 2.5, None]}
        return made


# -- answers


def _anthropic_content(answer: Answer) -> list[Json]:
    made: list[Json] = []
    for place, part in enumerate(answer.parts):
        match part[0]:
            case "text":
                made.append({"type": "text", "text": part[1]})
            case "thought":
                made.append({"type": "thinking", "thinking": part[1], "signature": f"sig{answer.number}"})
            case _:
                call = {"type": "tool_use", "id": f"call_{answer.number}_{place}", "name": part[1]}
                made.append({**call, "input": json.loads(part[2])})
    return made


def _chat_message(answer: Answer) -> dict[str, Json]:
    made: dict[str, Json] = {"role": "assistant"}
    made["content"] = "".join(part[1] for part in answer.parts if part[0] == "text") or None
    if thoughts := "".join(part[1] for part in answer.parts if part[0] == "thought"):
        made["reasoning_content"] = thoughts
    if calls := [
        {"id": one, "type": "function", "function": {"name": name, "arguments": given}}
        for one, name, given in answer.calls()
    ]:
        made["tool_calls"] = calls
    return made


def _responses_items(answer: Answer) -> list[Json]:
    made: list[Json] = []
    for place, part in enumerate(answer.parts):
        match part[0]:
            case "text":
                content = [{"type": "output_text", "text": part[1], "annotations": []}]
                made.append({"type": "message", "id": f"msg_{answer.number}_{place}", "role": "assistant"})
                made[-1]["content"] = content
            case "thought":
                made.append({"type": "reasoning", "id": f"rs_{answer.number}_{place}", "summary": []})
                made[-1]["encrypted_content"] = f"sealed{answer.number}"
            case _:
                made.append({"type": "function_call", "call_id": f"call_{answer.number}_{place}"})
                made[-1] |= {"id": f"fc_{answer.number}_{place}", "name": part[1], "arguments": part[2]}
    return made


def whole(api: str, answer: Answer, tokens: int) -> dict[str, Json]:
    """An answer in one piece."""
    is_calling = any(True for _ in answer.calls())
    match api:
        case "anthropic":
            usage = {"input_tokens": tokens, "output_tokens": 9, "cache_read_input_tokens": 0}
            made = {"id": f"msg_{answer.number}", "type": "message", "role": "assistant", "model": "m1", "usage": usage}
            stop = "tool_use" if is_calling else "end_turn"
            return {**made, "content": _anthropic_content(answer), "stop_reason": stop, "stop_sequence": None}
        case "openai_chat":
            finish = "tool_calls" if is_calling else "stop"
            choice = {"index": 0, "message": _chat_message(answer), "finish_reason": finish}
            usage = {"prompt_tokens": tokens, "completion_tokens": 9, "total_tokens": tokens + 9}
            return {"id": f"c{answer.number}", "object": "chat.completion", "choices": [choice], "usage": usage}
        case _:
            usage = {"input_tokens": tokens, "output_tokens": 9, "total_tokens": tokens + 9}
            made = {"id": f"resp_{answer.number}", "object": "response", "status": "completed", "model": "m1"}
            return {**made, "output": _responses_items(answer), "usage": usage}


def frames(api: str, answer: Answer, tokens: int) -> list[bytes]:
    """The same as a stream's events."""
    done = whole(api, answer, tokens)
    match api:
        case "anthropic":
            return [_event(one, one["type"]) for one in _anthropic_events(done)]
        case "openai_chat":
            return [*map(_event, _chat_events(done)), b"data: [DONE]\n\n"]
        case _:
            return [
                _event({**one, "sequence_number": at}, one["type"]) for at, one in enumerate(_responses_events(done))
            ]


def _event(data: Json, name: str = "") -> bytes:
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {json.dumps(data)}\n\n".encode()


def _anthropic_events(done: dict[str, Json]) -> Iterator[dict[str, Json]]:
    yield {"type": "message_start", "message": {**done, "content": [], "stop_reason": None}}
    yield {"type": "ping"}
    for index, block in enumerate(done["content"]):
        opened: dict[str, Json] = {**block}
        match block["type"]:
            case "text":
                opened["text"] = ""
                deltas: list[Json] = [{"type": "text_delta", "text": block["text"]}]
            case "thinking":
                opened |= {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case _:
                opened["input"] = {}
                given = json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in (given[:3], given[3:])]
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": done["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}}
    yield {"type": "message_stop"}


def _chat_events(done: dict[str, Json]) -> Iterator[dict[str, Json]]:
    frame = {"id": done["id"], "object": "chat.completion.chunk", "model": "m1"}
    (choice,) = done["choices"]
    message = choice["message"]
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas.extend({name: message[name]} for name in ("reasoning_content", "content") if message.get(name))
    for index, call in enumerate(message.get("tool_calls", ())):
        given = call["function"]["arguments"]
        opened = {**call, "index": index, "function": {**call["function"], "arguments": given[:2]}}
        deltas.append({"tool_calls": [opened]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": given[2:]}}]})
    for delta in deltas:
        yield {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**frame, "choices": [], "usage": done["usage"]}


def _responses_events(done: dict[str, Json]) -> Iterator[dict[str, Json]]:
    opened = {**done, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": opened}
    yield {"type": "response.in_progress", "response": opened}
    for index, item in enumerate(done["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        added = {**item, "status": "in_progress"}
        if item["type"] == "function_call":
            added["arguments"] = ""
        if item["type"] == "message":
            added["content"] = []
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        if item["type"] == "function_call":
            yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
        if item["type"] == "message":
            (part,) = item["content"]
            at = {**place, "content_index": 0}
            yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
            yield {"type": "response.output_text.delta", **at, "delta": part["text"]}
            yield {"type": "response.output_text.done", **at, "text": part["text"]}
            yield {"type": "response.content_part.done", **at, "part": part}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": done}


# -- what may become of them

_ODD: tuple[Json, ...] = (
    *(None, True, 0, -1, 1.5, 2**70, "", " ", "x" * 9000, "\ud83d", "\x00", "字\u202e", [], {}, [[]], [{}], {"": None}),
    *({"type": "unknown_of_tomorrow", "data": [1]}, [None, 1, "x", {"type": 7}], "assistant", "tool", "system"),
    *("new_context", "recall", "call_0_0", '{"a": ', "{}", "null"),
)


def _places(value: Json, most: int = 3000) -> list[tuple[Json, Any]]:
    """(container, key) of every value in it."""
    found: list[tuple[Json, Any]] = []
    left = [value]
    while left and len(found) < most:
        one = left.pop()
        keys = list(one) if isinstance(one, dict) else list(range(len(one))) if isinstance(one, list) else []
        found.extend((one, key) for key in keys)
        left.extend(one[key] for key in keys)
    return found


def bent(value: Json, rng: Random, times: int) -> Json:
    """A JSON value with some of its members changed, moved or gone."""
    made = json.loads(json.dumps(value))
    for _ in range(times):
        places = _places(made)
        if not places:
            return made
        _bend(rng, *rng.choice(places))
    return made


def _bend(rng: Random, container: Json, key: Any) -> None:
    match rng.randrange(8):
        case 0:
            del container[key]
        case 1 | 2:
            container[key] = rng.choice(_ODD)
        case 3:
            container[key] = [container[key]] if rng.random() < 0.5 else {"type": "text", "text": container[key]}
        case 4 if isinstance(container, list):
            container.insert(rng.randrange(len(container) + 1), json.loads(json.dumps(container[key])))
        case 5 if isinstance(container, list):
            other = rng.randrange(len(container))
            container[key], container[other] = container[other], container[key]
        case 4 | 5:
            container[f"{key}_"] = container.pop(key)
        case 6 if isinstance(container, dict):
            container[rng.choice(("", "type", "role", "id", "cache_control", "\ud800", "x" * 300))] = rng.choice(_ODD)
        case 6:
            del container[key:]
        case _:
            if isinstance(container[key], str):
                container[key] = container[key][: rng.randrange(len(container[key]) + 1)] + rng.choice(
                    ("", "\ud83d", "\x00")
                )


_TEARS: tuple[Callable[[bytes, Random], bytes], ...] = (
    lambda raw, rng: raw[: rng.randrange(len(raw) + 1)],
    lambda raw, rng: raw + rng.choice((b"}", b"\x00", b" ", b"[]", b"\n\n", raw)),
    lambda raw, _: b"\xef\xbb\xbf" + raw,
    lambda raw, rng: _put(raw, rng, rng.choice((b"\xff", b"\x00", b'"', b"\\", b"{", b"]", b"\xed\xa0\x80"))),
    lambda raw, rng: _put(raw, rng, bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))),
    lambda raw, rng: raw.replace(b":1", b":" + rng.choice((b"NaN", b"-Infinity", b"1e999", b"01", b"9" * 5000)), 1),
    lambda raw, _: raw.replace(b"{", b'{"model":"m2","model":"m3",', 1),
    lambda raw, rng: raw.replace(b'"text"', b'"te\\u0078t"', rng.randrange(1, 9)),
    lambda raw, _: raw.replace(b"}", b',"deep":' + b"[" * 3000 + b"]" * 3000 + b"}", 1),
    lambda raw, _: raw.decode("utf-8", "replace").encode("utf-16"),
)


def _put(raw: bytes, rng: Random, data: bytes) -> bytes:
    place = rng.randrange(len(raw) + 1)
    return raw[:place] + data + raw[place + rng.randrange(3) :]


def torn(raw: bytes, rng: Random) -> bytes:
    """Bytes that were JSON once."""
    return rng.choice(_TEARS)(raw, rng)


def shaken(events: list[bytes], rng: Random, times: int) -> list[bytes]:
    """A stream with some of its events changed, moved or gone."""
    made = list(events)
    for _ in range(times):
        if not made:
            return made
        at = rng.randrange(len(made))
        match rng.randrange(9):
            case 0:
                del made[at]
            case 1:
                made.insert(at, made[rng.randrange(len(made))])
            case 2:
                other = rng.randrange(len(made))
                made[at], made[other] = made[other], made[at]
            case 3:
                made.insert(
                    at, rng.choice((b": a comment\n\n", b"event: of_tomorrow\ndata: {}\n\n", b"\n\n", b"x\n\n"))
                )
            case 4:
                made[at] = torn(made[at], rng)
            case 5:
                made[at] = made[at].replace(b"\n", rng.choice((b"\r\n", b"\r")))
            case 6:
                made[at] = b"".join(b"data: " + line + b"\n" for line in made[at].splitlines()) + b"\n"
            case _:
                made[at] = _rewritten(made[at], rng)
    return made


def _rewritten(frame: bytes, rng: Random) -> bytes:
    head, found, data = frame.partition(b"data: ")
    try:
        value = json.loads(data)
    except ValueError:
        return frame
    return head + found + json.dumps(bent(value, rng, rng.randrange(1, 4))).encode("utf-8", "surrogatepass") + b"\n\n"
