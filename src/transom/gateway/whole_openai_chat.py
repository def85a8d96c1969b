"""Taking the host's calls out of answers of the Chat Completions API that come in one piece, and joining several."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from transom.adapters.provider_errors import Failure
from transom.adapters.provider_openai_chat_reply import ChatReader
from transom.adapters.provider_writing import written_array, written_object
from transom.errors import UsageError
from transom.gateway.face_openai import array_of, error, is_set, object_of, string_of
from transom.gateway.joining_openai import CHAT_USAGE, finish_reason, joined_usage, joined_words, takes_none
from transom.ports import Reply

__all__ = ["ChatWhole"]

_CALLS = "tool_calls"
_DETAILS = "reasoning_details"
_WORDS = ("content", "refusal", "reasoning_content", "reasoning")
"""Fields of a message that are words."""


class ChatWhole:
    """Answers in one piece."""

    def __init__(self) -> None:
        self._takes: Callable[[str], bool] = takes_none
        self._answer: Reply | Failure | None = None
        self._last = b""
        self._bodies: list[dict[str, bytes]] = []
        self._messages: list[dict[str, bytes]] = []
        self._calls: list[bytes] = []
        """Those the client gets."""
        self._is_plain = True

    def start(self, takes: Callable[[str], bool]) -> None:
        self._takes, self._answer = takes, None

    def feed(self, data: bytes) -> bytes:
        raise UsageError(f"an answer in one piece does not stream ({len(data):,} bytes)")

    def whole(self, data: bytes) -> None:
        self._answer, self._last = ChatReader("").whole(data), data
        if isinstance(self._answer, Failure):
            return
        body = object_of(data)
        message = object_of(_choice(body).get("message", b""))
        calls = array_of(message.get(_CALLS, b""))
        has_choices = len(array_of(body.get("choices", b""))) > 1
        kept = [raw for raw in calls if has_choices or not self._takes(_called(raw))]
        self._is_plain = not self._bodies and len(kept) == len(calls)
        self._bodies.append(body)
        self._messages.append(message)
        self._calls.extend(kept)

    @property
    def answer(self) -> Reply | Failure | None:
        return self._answer

    @property
    def wire(self) -> str:
        return ""

    def end(self) -> bytes:
        if self._is_plain or isinstance(self._answer, Failure):
            return self._last
        body, choice = dict(self._bodies[-1]), _choice(self._bodies[-1])
        choice["message"] = written_object(self._message())
        choice["finish_reason"] = finish_reason(choice.get("finish_reason", b"null"), has_calls=bool(self._calls))
        body["choices"] = written_array([written_object(choice)])
        if "id" in self._bodies[0]:
            body["id"] = self._bodies[0]["id"]
        usages = [usage for one in self._bodies[:-1] if is_set(usage := one.get("usage", b""))]
        if usage := joined_usage(usages, body.get("usage", b""), CHAT_USAGE):
            body["usage"] = usage
        return written_object(body)

    def _message(self) -> dict[str, bytes]:
        message = dict(self._messages[-1])
        for name in _WORDS:
            words = joined_words(one.get(name, b"") for one in self._messages)
            if words != b'""':
                message[name] = words
        if details := [raw for one in self._messages for raw in array_of(one.get(_DETAILS, b""))]:
            message[_DETAILS] = written_array(details)
        message.pop(_CALLS, None)
        return message | ({_CALLS: written_array(self._calls)} if self._calls else {})

    def failed(self, message: str) -> bytes:
        return error(500, message)


def _called(call: bytes) -> str:
    return string_of(object_of(object_of(call).get("function", b"")).get("name", b""))


def _choice(body: Mapping[str, bytes]) -> dict[str, bytes]:
    choices = array_of(body.get("choices", b""))
    return object_of(choices[0]) if choices else {}
