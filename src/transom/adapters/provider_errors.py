"""What a provider's failure means: pure classification of status, structured codes and, last, the message's words.

Evidence ranks. What the API says in a field of its own decides first; then the status where it has one meaning; only
then the words, and only the provider's message, never the whole body. Before words count as an overflow they must
survive the vetoes: throttling ("too many tokens, please wait"), quotas, caps on the output, and limits on files,
pictures and single fields all speak of something that is too large or too long, and a smaller window cures none.

    overflow      the prompt is larger than the model's window  -> `Overflow`
    rate          too much in too little time                   -> retried, then `Unavailable`
    unavailable   the other side is down, busy or cut off       -> retried, then `Unavailable`
    auth, quota, invalid                                        -> `ProviderError`, at once
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import msgspec

__all__ = ["Failure", "FailureKind", "classify", "failure_of", "is_passing"]

FailureKind = Literal["overflow", "rate", "unavailable", "auth", "quota", "invalid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why there is no answer, with the provider's own words."""

    kind: FailureKind
    message: str


_CODES: dict[str, FailureKind] = {
    "context_length_exceeded": "overflow",
    "context_window_exceeded": "overflow",
    "model_context_window_exceeded": "overflow",
    "exceed_context_size_error": "overflow",
    "request_too_large": "overflow",
    "rate_limit_error": "rate",
    "rate_limit_exceeded": "rate",
    "too_many_requests": "rate",
    "ThrottlingException": "rate",
    "overloaded_error": "unavailable",
    "api_error": "unavailable",
    "timeout_error": "unavailable",
    "server_error": "unavailable",
    "server_is_overloaded": "unavailable",
    "slow_down": "unavailable",
    "UNAVAILABLE": "unavailable",
    "authentication_error": "auth",
    "permission_error": "auth",
    "invalid_api_key": "auth",
    "insufficient_quota": "quota",
    "billing_error": "quota",
    "billing_hard_limit_reached": "quota",
    "not_found_error": "invalid",
    "model_not_found": "invalid",
}
"""Codes and error types that mean one thing wherever they stand."""

_THROTTLED = re.compile(
    r"rate.?limit|too many (requests|tokens, please wait)|throttl|tokens? per (min|day|hour)|\bTPM\b|\bRPM\b"
    r"|please (wait|slow down)|service unavailable|server (is )?(busy|overloaded)",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"(current|monthly|daily|usage|your) quota|quota (exceeded|has been)|credit balance"
    r"|insufficient (balance|credit|funds)|billing",
    re.IGNORECASE,
)
_INPUT = re.compile(
    r"\b(prompt|input|messages?|conversation)\b.{0,60}\b(too long|exceeds?|exceeded|longer than|too large)\b"
    r"|\b(exceeds?|exceeded|(longer|larger|greater) than)\b.{0,60}\bcontext"
    r"|context.{0,20}\b(exceeded|exceeds|overflow)\b"
    r"|maximum (context|prompt) length|max(imum)? allowed input length|configured context size"
    r"|available context size|model's context length|reduce the length of the (messages|prompt|input)"
    r"|exceeded model token limit|range of input length should be|prompt exceeds max length"
    r"|`inputs` tokens \+ `max_new_tokens`|prompt token count of \d+|input token count.{0,40}exceeds",
    re.IGNORECASE | re.DOTALL,
)
"""What the APIs call a prompt that does not fit."""
_ELSEWHERE = re.compile(
    r"\b(image|picture|photo|pdf|pages?|files?|attachments?|audio|video|upload|base64)\b"
    r"|number of (tools|functions|messages|images|files|stop)|stop sequences?|metadata|prompt_cache_key|schema"
    r"|string too long|string with maximum length|maximum length of? ?\d+ (characters|bytes)|\bcharacters\b"
    r"|tools?\.\d+|tools?\[\d+\]|function\.(name|description)|not (yet )?available for",
    re.IGNORECASE,
)
"""Limits of other things."""
_OUTPUT = re.compile(
    r"max(imum)?[_ ](output|completion|new)[_ ]?tokens|max_tokens|output tokens|completion tokens", re.IGNORECASE
)
_SUM = re.compile(r"`?inputs?`? (length|tokens)|in the (messages|input|prompt)|your (messages|prompt)", re.IGNORECASE)
"""An output cap named beside the input it is added to: then the sum is what does not fit."""
_ASKED = re.compile(r"(?:is too large: |`?max_tokens`?: ?)(\d+)")
_WINDOW = re.compile(r"maximum context length is (\d+)")

_BODILESS_OVERFLOW = frozenset({"cerebras"})
"""Providers that say a prompt is too long by a 400 or 413 without a body."""


class _Detail(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    status: str | int | None = None
    metadata: dict[str, msgspec.Raw] | None = None


class _Body(msgspec.Struct):
    error: _Detail | str | None = None
    message: str | None = None
    detail: msgspec.Raw = msgspec.Raw(b"null")
    type: str | None = None
    code: str | int | None = None


_BODY = msgspec.json.Decoder(_Body)
_BODIES = msgspec.json.Decoder(list[_Body])
_LONGEST = 2000
"""Characters of a message that are kept: an HTML page says nothing more after that."""


def failure_of(status: int, body: bytes, provider: str = "") -> Failure:
    """What an answer that is no answer means. `status` 0: it came inside a stream."""
    codes, message = _read(body)
    if not message:
        message = body.decode("utf-8", "replace").strip() or f"HTTP {status} without a word"
    kind = classify(status, codes, message, provider=provider, is_bodiless=not body.strip())
    return Failure(kind=kind, message=message[:_LONGEST])


def classify(
    status: int, codes: tuple[str, ...], message: str, *, provider: str = "", is_bodiless: bool = False
) -> FailureKind:
    """The kind of a failure, by the best evidence there is."""
    known = [_CODES[code] for code in codes if code in _CODES]
    if status == 402 or "quota" in known or (status in {403, 429} and _QUOTA.search(message)):
        return "quota"
    if status == 429 or "rate" in known:
        return "rate"
    if status in {401, 403} or "auth" in known:
        return "auth"
    if "overflow" in known:
        return "overflow"
    if is_bodiless and status in {400, 413} and (status == 413 or provider in _BODILESS_OVERFLOW):
        return "overflow"
    worded = _by_words(message)
    if worded is not None and (status < 500 or worded == "overflow"):
        return worded
    if status == 413:
        return "invalid" if _is_elsewhere(message) else "overflow"
    if status >= 500 or status == 408 or "unavailable" in known:
        return "unavailable"
    return "invalid" if status or "invalid" in known else _unnamed(codes)


def is_passing(failure: Failure) -> bool:
    """Whether the same request may succeed later."""
    return failure.kind in {"rate", "unavailable"}


def _by_words(message: str) -> FailureKind | None:
    if _THROTTLED.search(message):
        return "rate"
    if _QUOTA.search(message):
        return "quota"
    if not _INPUT.search(message) or _is_elsewhere(message):
        return None
    if _OUTPUT.search(message):
        asked, window = _ASKED.search(message), _WINDOW.search(message)
        is_cap = not _SUM.search(message) or (asked and window and int(asked[1]) >= int(window[1]))
        return "invalid" if is_cap else "overflow"
    return "overflow"


def _is_elsewhere(message: str) -> bool:
    return _ELSEWHERE.search(message) is not None


def _unnamed(codes: tuple[str, ...]) -> FailureKind:
    """An error inside a stream has no status: numbers among its codes are one, and what says nothing may pass."""
    for code in codes:
        if code.isdigit():
            return "invalid" if 400 <= int(code) < 500 and code not in {"408", "429"} else "unavailable"
    return "invalid" if any("invalid" in code for code in codes) else "unavailable"


def _read(body: bytes) -> tuple[tuple[str, ...], str]:
    """(codes and types, message) of an error in any of the shapes APIs use."""
    try:
        found = _BODIES.decode(body)[0] if body.lstrip().startswith(b"[") else _BODY.decode(body)
    except (msgspec.DecodeError, IndexError, RecursionError):
        return (), ""
    inner = found.error
    if isinstance(inner, str):
        return _codes(found.type, found.code), inner
    if inner is None:
        detail = bytes(found.detail)
        return _codes(found.type, found.code), found.message or ("" if detail == b"null" else detail.decode())
    message = inner.message or ""
    raw = (inner.metadata or {}).get("raw")
    if raw is not None:  # a router quotes the provider behind it
        message = f"{message}: {bytes(raw).decode('utf-8', 'replace')}"
    return _codes(inner.type, inner.code, inner.status), message


def _codes(*found: str | int | None) -> tuple[str, ...]:
    return tuple(str(one) for one in found if one not in {None, ""})
