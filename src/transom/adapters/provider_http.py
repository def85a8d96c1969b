"""Sending: the one place where a provider is reached over HTTP, whichever API it speaks.

A request is sent, its answer read as it comes, and what is passing (throttling, an overloaded or absent server, a
stream that broke off) is tried again: after what `Retry-After` says, else after a random share of a wait that doubles
(full jitter). A retry sends the same bytes. Half an answer is never handed out: what a person saw of it is named as
broken off, and the answer starts anew.

Closing the iterator closes the connection: that is how a request is cancelled.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Self

import httpx2
import msgspec

from transom.adapters.provider_api import Api, Reader
from transom.adapters.provider_errors import Failure, failure_of, is_passing
from transom.core.wire import Dialect
from transom.errors import BadInput, Overflow, ProviderError, Unavailable, reason_of
from transom.ports import Delta, Outgoing, Reply

__all__ = ["Endpoint", "HttpProvider", "Patience"]

_TIMEOUT = httpx2.Timeout(connect=15, read=600, write=60, pool=15)
"""Seconds. A model may think for minutes before its first byte where it is not streamed."""
_NEAR = frozenset({"localhost", "127.0.0.1", "::1"})
"""A server on this machine is never behind the proxy that the environment names."""
_EVENT_BYTES = 64 * 1024 * 1024
"""The last event of a Responses stream repeats the whole answer."""
_BROKEN_OFF = "\n[the answer broke off; asking again]\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a provider is, and with which key. `key_variable` is named in messages; the key never is."""

    name: str
    base_url: str
    key: str = ""
    key_variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How trouble is waited out. `sleep`, `share` (0 to 1) and `now` (seconds since the epoch) are its world."""

    tries: int = 6
    first_wait: float = 0.5
    longest_wait: float = 30.0
    longest_asked: float = 120.0
    """A longer `Retry-After` is not waited for."""
    sleep: Callable[[float], None] = time.sleep
    share: Callable[[], float] = random.random
    now: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setback:
    failure: Failure
    asked: float | None = None
    """Seconds the provider asks to wait."""
    is_final: bool = False
    """The provider says that a retry is pointless."""
    has_shown: bool = False
    """Some of the answer went out before it failed."""


class HttpProvider:
    """A model behind an API over HTTP. Close it, or use it as a context."""

    def __init__(self, api: Api, endpoint: Endpoint, patience: Patience | None = None) -> None:
        if not endpoint.base_url.startswith(("http://", "https://")):
            raise BadInput(f"{endpoint.name}: base URL {endpoint.base_url!r} starts with neither http:// nor https://")
        if not (endpoint.key.isascii() and endpoint.key.isprintable()):
            raise ProviderError(
                f"{endpoint.name}: the key in {endpoint.key_variable} holds characters no key has; set it again"
            )
        self._api = api
        self._endpoint = endpoint
        self._patience = patience or Patience()
        self._url = endpoint.base_url.rstrip("/") + api.path
        is_near = httpx2.URL(self._url).host in _NEAR
        self._client = httpx2.Client(timeout=_TIMEOUT, trust_env=not is_near)

    @property
    def dialect(self) -> Dialect:
        return self._api.dialect

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, request: Outgoing) -> Iterator[Delta | Reply]:
        body = self._api.body(request)
        for attempt in range(1, self._patience.tries + 1):
            outcome = yield from self._tried(body)
            if isinstance(outcome, Reply):
                yield outcome
                return
            wait = self._wait(outcome, attempt)
            if wait is None:
                raise self._error(outcome.failure, attempt)
            if outcome.has_shown:
                yield Delta(kind="text", text=_BROKEN_OFF)
            yield Delta(kind="notice", text=self._notice(outcome.failure, attempt, wait))
            self._patience.sleep(wait)

    def _tried(self, body: bytes) -> Generator[Delta, None, Reply | _Setback]:
        """One request, whatever becomes of it."""
        has_shown = False
        answer = self._answered(body)
        try:
            while True:
                delta = next(answer)
                has_shown = True
                yield delta
        except StopIteration as end:
            outcome: Reply | _Setback = end.value
        except httpx2.RequestError as error:
            outcome = _cut(_trouble(error))
        finally:
            answer.close()
        return outcome if isinstance(outcome, Reply) else replace(outcome, has_shown=has_shown)

    def _answered(self, body: bytes) -> Generator[Delta, None, Reply | _Setback]:
        headers = {"content-type": "application/json", **self._api.headers(self._endpoint.key)}
        with self._client.stream("POST", self._url, content=body, headers=headers) as response:
            if response.status_code >= 300:
                failure = failure_of(response.status_code, response.read(), self._endpoint.name)
                return self._setback(failure, response.headers)
            reader = self._api.reader()
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                return (yield from self._streamed(reader, response))
            try:
                found = reader.whole(response.read())
            except (msgspec.DecodeError, RecursionError) as error:
                return _cut(f"its answer cannot be read: {error}")
            return found if isinstance(found, Reply) else self._setback(found, response.headers)

    def _streamed(self, reader: Reader, response: httpx2.Response) -> Generator[Delta, None, Reply | _Setback]:
        trouble = "the stream ended before the answer did"
        try:
            for event in httpx2.EventSource(response, _EVENT_BYTES):
                found = reader.event(event.data) if event.data else None
                if isinstance(found, Failure):
                    return self._setback(found, response.headers)
                if found is not None and found.text:
                    yield found
                if reader.is_done:
                    break
        except httpx2.RequestError as error:
            trouble = _trouble(error)
        except (msgspec.DecodeError, RecursionError) as error:
            return _cut(f"an event of its stream cannot be read: {error}")
        return reader.reply() or _cut(trouble)

    def _setback(self, failure: Failure, headers: httpx2.Headers) -> _Setback:
        return _Setback(
            failure=failure,
            asked=_asked(headers, self._patience.now),
            is_final=headers.get("x-should-retry", "").lower() == "false",
        )

    def _wait(self, setback: _Setback, attempt: int) -> float | None:
        """Seconds until the next try; None: there is none."""
        if not is_passing(setback.failure) or setback.is_final or attempt >= self._patience.tries:
            return None
        if setback.asked is not None:
            return setback.asked if setback.asked <= self._patience.longest_asked else None
        longest = min(self._patience.longest_wait, self._patience.first_wait * (1 << (attempt - 1)))
        return longest * self._patience.share()

    def _notice(self, failure: Failure, attempt: int, wait: float) -> str:
        again = f"asking again in {wait:.1f} s (try {attempt + 1} of {self._patience.tries})"
        return f"{self._endpoint.name} at {self._endpoint.base_url}: {self._harmless(failure.message)}; {again}"

    def _harmless(self, words: str) -> str:
        return words.replace(self._endpoint.key, "***") if self._endpoint.key else words

    def _error(self, failure: Failure, attempts: int) -> ProviderError:
        name, words = self._endpoint.name, self._harmless(failure.message)
        variable = self._endpoint.key_variable or "no variable"
        match failure.kind:
            case "overflow":
                return Overflow(f"{name}: the request is larger than the model's window: {words}")
            case "rate" | "unavailable":
                return Unavailable(f"{name} at {self._endpoint.base_url}: no answer in {attempts} tries: {words}")
            case "auth":
                return ProviderError(f"{name}: refused the key in {variable}; check it, or set another: {words}")
            case "quota":
                return ProviderError(f"{name}: the account of the key in {variable} has no credit left: {words}")
            case "invalid":
                return ProviderError(f"{name}: refused the request: {words}")


def _cut(trouble: str) -> _Setback:
    return _Setback(failure=Failure(kind="unavailable", message=trouble))


def _trouble(error: httpx2.RequestError) -> str:
    return f"{type(error).__name__}: {reason_of(error)}" if str(error) else type(error).__name__


def _asked(headers: httpx2.Headers, now: Callable[[], float]) -> float | None:
    """What `Retry-After` asks for, in seconds: milliseconds, seconds or a date; None if it says nothing."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value: str = headers.get(name, "").strip()
        if value:
            seconds = _seconds(value, now)
            if seconds is not None:
                return max(0.0, seconds * unit)
    return None


def _seconds(value: str, now: Callable[[], float]) -> float | None:
    try:
        found = float(value)
    except ValueError:
        try:
            found = parsedate_to_datetime(value).timestamp() - now()
        except ValueError:
            return None
    return found if math.isfinite(found) else None
