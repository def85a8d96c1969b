"""The made-up project the sample session works on: `courier`, a worker that delivers webhooks."""

from __future__ import annotations

__all__ = ["LOG", "project"]

_PYPROJECT = """[project]
name = "courier"
version = "2.3.1"
requires-python = ">=3.9"
dependencies = []

[tool.pytest.ini_options]
testpaths = ["tests"]
"""

_CHANGELOG = """# Changelog

## 2.3.1 - 2026-02-11
- The queue survives a full disk.

## 2.3.0 - 2026-01-19
- Deliveries are retried with exponential backoff and jitter.
- `courier.metrics` counts attempts, successes and give-ups.
"""

_CLIENT = '''"""One delivery: build the request, send it, say what happened."""

import http.client
import logging
import time
from urllib.parse import urlsplit

from courier.backoff import delay
from courier.config import Settings
from courier.metrics import count
from courier.retry import is_retryable, wait_for
from courier.wire import encode_headers, read_response

log = logging.getLogger("courier")


class Delivery:
    """What is sent, and how often it was tried."""

    def __init__(self, message_id, url, body, headers=None):
        self.message_id = message_id
        self.url = url
        self.body = body
        self.headers = dict(headers or {})
        self.attempts = 0

    def __repr__(self):
        return f"<Delivery {self.message_id} attempts={self.attempts}>"


class GaveUp(Exception):
    """Every attempt failed; the last status is in `status`."""

    def __init__(self, delivery, status):
        super().__init__(f"{delivery.message_id}: gave up after {delivery.attempts} attempts, last status {status}")
        self.status = status


class Client:
    def __init__(self, settings=None, sleep=time.sleep, clock=time.time):
        self.settings = settings or Settings()
        self.sleep = sleep
        self.clock = clock

    def send(self, delivery, timeout=None):
        """Send until it is accepted, or raise `GaveUp`. The signature is public: plugins override it."""
        last = None
        while delivery.attempts < self.settings.max_attempts:
            delivery.attempts += 1
            response = self._once(delivery, timeout or self.settings.timeout)
            count("attempt", status=response.status)
            if response.status < 300:
                count("success")
                return response
            last = response.status
            if not is_retryable(response.status):
                break
            pause = wait_for(response, default=delay(delivery.attempts, self.settings))
            log.warning("retry id=%s status=%s pause=%.1f", delivery.message_id, response.status, pause)
            self.sleep(pause)
        count("gave_up", status=last)
        raise GaveUp(delivery, last)

    def _once(self, delivery, timeout):
        parts = urlsplit(delivery.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=timeout)
        try:
            connection.request("POST", parts.path or "/", delivery.body, encode_headers(delivery.headers))
            return read_response(connection.getresponse())
        finally:
            connection.close()
'''

_RETRY = '''"""When to try again, and how long to wait before."""

RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
MAX_PAUSE = 900.0


def is_retryable(status):
    return status in RETRYABLE


def wait_for(response, default):
    """Seconds to wait. The server's own wish is not looked at yet."""
    return min(default, MAX_PAUSE)
'''

_BACKOFF = '''"""Exponential backoff with jitter that is the same for the same attempt and seed."""

import random


def delay(attempt, settings):
    """Seconds before attempt number `attempt + 1`."""
    exact = settings.base_pause * settings.factor ** (attempt - 1)
    spread = random.Random(f"{settings.seed}:{attempt}").uniform(-settings.jitter, settings.jitter)
    return max(0.0, min(exact * (1 + spread), settings.max_pause))
'''

_CONFIG = '''"""Settings, from keyword arguments or the environment."""

import os

_DEFAULTS = {
    "max_attempts": 6,
    "timeout": 10.0,
    "base_pause": 0.5,
    "factor": 2.0,
    "jitter": 0.1,
    "max_pause": 120.0,
    "seed": 0,
    "queue_path": "courier.queue",
    "visibility": 30.0,
}


class Settings:
    def __init__(self, **changes):
        unknown = set(changes) - set(_DEFAULTS)
        if unknown:
            raise TypeError(f"unknown settings: {', '.join(sorted(unknown))}")
        for name, value in {**_DEFAULTS, **changes}.items():
            setattr(self, name, value)

    @classmethod
    def from_env(cls, env=os.environ):
        changes = {}
        for name, value in _DEFAULTS.items():
            text = env.get("COURIER_" + name.upper())
            if text is not None:
                changes[name] = type(value)(text)
        return cls(**changes)
'''

_QUEUE = '''"""A queue in one file: a JSON line a change, replayed on open. The format is read by other tools: keep it.

    {"op": "put", "id": "m-1", "at": 1772614000.0, "body": "..."}
    {"op": "take", "id": "m-1", "at": 1772614001.5, "until": 1772614031.5}
    {"op": "done", "id": "m-1", "at": 1772614002.0}
"""

import json
import os
import time


class Queue:
    def __init__(self, settings, clock=time.time):
        self.path = settings.queue_path
        self.visibility = settings.visibility
        self.clock = clock
        self.waiting = {}
        self.taken = {}
        self._replay()

    def put(self, message_id, body):
        self.waiting[message_id] = body
        self._write(op="put", id=message_id, body=body)

    def take(self):
        """The oldest message nobody works on; it comes back after `visibility` seconds."""
        self._return_expired()
        for message_id in self.waiting:
            body = self.waiting.pop(message_id)
            until = self.clock() + self.visibility
            self.taken[message_id] = (until, body)
            self._write(op="take", id=message_id, until=until)
            return message_id, body
        return None

    def done(self, message_id):
        self.taken.pop(message_id, None)
        self._write(op="done", id=message_id)

    def _return_expired(self):
        now = self.clock()
        for message_id, (until, body) in list(self.taken.items()):
            if until <= now:
                del self.taken[message_id]
                self.waiting[message_id] = body

    def _write(self, **change):
        line = json.dumps({**change, "at": self.clock()})
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\\n")
            file.flush()
            os.fsync(file.fileno())

    def _replay(self):
        if not os.path.exists(self.path):
            return
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                change = json.loads(line)
                if change["op"] == "put":
                    self.waiting[change["id"]] = change["body"]
                elif change["op"] == "take":
                    self.taken[change["id"]] = (change["until"], self.waiting.pop(change["id"], ""))
                else:
                    self.taken.pop(change["id"], None)
'''

_WORKER = '''"""The loop: take, send, done."""

import logging

from courier.client import Client, Delivery, GaveUp
from courier.metrics import count

log = logging.getLogger("courier")


def work(queue, client: Client, url: str, limit: int = 0) -> int:
    """Deliver until the queue is empty; the number delivered."""
    delivered = 0
    while True:
        item = queue.take()
        if item is None or (limit and delivered >= limit):
            return delivered
        message_id, body = item
        try:
            client.send(Delivery(message_id, url, body))
        except GaveUp as problem:
            log.error("gave up id=%s status=%s", message_id, problem.status)
            count("dead_letter")
        delivered += 1
        queue.done(message_id)
'''

_METRICS = '''"""Counters, kept in memory until somebody asks."""

from collections import Counter

_counts = Counter()


def count(name, **labels):
    _counts[(name, tuple(sorted(labels.items())))] += 1


def snapshot():
    return dict(_counts)
'''

_HEADERS = (
    "Accept", "Accept-Encoding", "Authorization", "Cache-Control", "Content-Encoding", "Content-Language",
    "Content-Length", "Content-Type", "Date", "Digest", "ETag", "Expect", "Expires", "Forwarded", "From", "Host",
    "Idempotency-Key", "If-Match", "Last-Modified", "Link", "Location", "Origin", "Prefer", "Priority", "Range",
    "Referer", "Retry-After", "Server", "Signature", "Signature-Input", "Traceparent", "Tracestate", "Trailer",
    "Transfer-Encoding", "User-Agent", "Vary", "Via", "Warning", "Webhook-Id", "Webhook-Timestamp",
)  # fmt: skip


def _wire() -> str:
    lines = [
        '"""Headers and responses: what goes over the wire and what comes back."""',
        "",
        "",
        "class Response:",
        "    def __init__(self, status, headers, body):",
        "        self.status = status",
        "        self.headers = {name.lower(): value for name, value in headers}",
        "        self.body = body",
        "",
        "",
        "def read_response(raw):",
        "    return Response(raw.status, raw.getheaders(), raw.read())",
        "",
    ]
    for header in _HEADERS:
        name = header.lower().replace("-", "_")
        lines += [
            "",
            f"def check_{name}(value):",
            f'    """`{header}` as one line of printable text, or a ValueError that says where it is not."""',
            "    for position, character in enumerate(value):",
            "        if not 32 <= ord(character) < 127:",
            f'            raise ValueError(f"{header}: character {{position}} is {{character!r}}")',
            "    return value.strip()",
            "",
        ]
    lines += ["", "CHECKS = {"]
    lines += [f'    "{header.lower()}": check_{header.lower().replace("-", "_")},' for header in _HEADERS]
    lines += [
        "}",
        "",
        "",
        "def encode_headers(headers):",
        "    return {name: CHECKS.get(name.lower(), str)(value) for name, value in headers.items()}",
        "",
    ]
    return "\n".join(lines)


def _table_test(module: str, call: str, cases: list[tuple[str, str]]) -> str:
    lines = [f"import pytest\n\nfrom courier import {module}\n"]
    for name, row in cases:
        lines.append(f"\ndef test_{name}(make):\n    given, expected = {row}\n    assert {call} == expected\n")
    return "\n".join(lines)


def _tests() -> dict[str, str]:
    wire = [
        (f"{h.lower().replace('-', '_')}_is_stripped", f'(" value-{i} ", "value-{i}")') for i, h in enumerate(_HEADERS)
    ]
    retry = [
        (f"status_{status}", f"({status}, {status in {408, 425, 429, 500, 502, 503, 504}})")
        for status in (200, 204, 301, 400, 401, 403, 404, 408, 409, 410, 422, 425, 429, 500, 501, 502, 503, 504)
    ]
    backoff = [(f"attempt_{n}_stays_in_its_band", f"({n}, {0.5 * 2 ** (n - 1)!r})") for n in range(1, 13)]
    return {
        "tests/test_wire.py": _table_test("wire", "make(given)", wire),
        "tests/test_retry.py": _table_test("retry", "retry.is_retryable(given)", retry)
        + '\n\ndef test_seconds_are_obeyed(respond):\n    assert retry.wait_for(respond("120"), default=1.0) == 120.0\n'
        "\n\ndef test_a_date_is_obeyed(respond, now):\n"
        '    assert retry.wait_for(respond("Wed, 04 Mar 2026 09:13:00 GMT"), default=1.0) == 60.0\n'
        "\n\ndef test_nonsense_falls_back_to_the_default(respond):\n"
        '    assert retry.wait_for(respond("soon"), default=1.5) == 1.5\n',
        "tests/test_backoff.py": _table_test("backoff", "make(given)", backoff),
    }


def _log() -> str:
    """A day of deliveries: 503s, and message ids that were sent twice 30 seconds later."""
    lines = []
    for n in range(430):
        second = 32400 + n * 7
        stamp = f"2026-03-02 {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        again = {6: 5, 12: 11}.get(n % 37, 0)  # both workers deliver what was retried at n % 37 == 1
        message = f"m-{4100 + n - again}"
        if n % 37 in {0, 1}:
            lines.append(f"{stamp} WARNING courier retry id={message} status=503 pause=31.{n % 10} worker=w{n % 3}")
        elif n % 53 == 17:
            lines.append(
                f"{stamp} ERROR courier gave up id={message} status=502 worker=w{n % 3} 连接被拒绝 (ECONNREFUSED)"
            )
        else:
            size = 700 + n * 13 % 900
            lines.append(f"{stamp} INFO courier delivered id={message} status=202 bytes={size} worker=w{n % 3}")
    return "\n".join(lines)


LOG = _log()


def project() -> dict[str, str]:
    """Path -> text of every file, before the session."""
    return {
        "CHANGELOG.md": _CHANGELOG,
        "pyproject.toml": _PYPROJECT,
        "courier/backoff.py": _BACKOFF,
        "courier/client.py": _CLIENT,
        "courier/config.py": _CONFIG,
        "courier/metrics.py": _METRICS,
        "courier/queue.py": _QUEUE,
        "courier/retry.py": _RETRY,
        "courier/wire.py": _wire(),
        "courier/worker.py": _WORKER,
        "logs/delivery-2026-03-02.log": LOG,
        **_tests(),
    }
