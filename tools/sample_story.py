"""What happens in the sample session: a bug, three wrong turns, a second bug in the log, a rule nearly broken."""

from __future__ import annotations

from sample_desk import Call, Desk, Recorder
from sample_files import LOG

__all__ = ["tell"]

_NAIVE = """tests/test_retry.py:95: in test_a_date_is_obeyed
    assert retry.wait_for(respond("Wed, 04 Mar 2026 09:13:00 GMT"), default=1.0) == 60.0
courier/retry.py:15: in wait_for
    return min(float(int(wish)), MAX_PAUSE)
E   ValueError: invalid literal for int() with base 10: 'Wed, 04 Mar 2026 09:13:00 GMT\'"""

_AWARE = """tests/test_retry.py:95: in test_a_date_is_obeyed
    assert retry.wait_for(respond("Wed, 04 Mar 2026 09:13:00 GMT"), default=1.0) == 60.0
courier/retry.py:24: in wait_for
    return min((parsedate_to_datetime(wish) - datetime.utcnow()).total_seconds(), MAX_PAUSE)
E   TypeError: can't subtract offset-naive and offset-aware datetimes"""

_TWICE = """tests/test_queue.py:31: in test_a_long_pause_keeps_the_message
    assert queue.take() is None
E   AssertionError: assert ('m-1', 'hello') is None"""

_MATCH = """ImportError while loading conftest '/home/dev/courier/tests/conftest.py'.
tests/conftest.py:3: in <module>
    from courier import retry
E     File "/home/dev/courier/courier/retry.py", line 21
E       match kind_of(wish):
E             ^
E   SyntaxError: invalid syntax"""

_FIRST = '''def wait_for(response, default):
    """Seconds to wait. The server's own wish is not looked at yet."""
    return min(default, MAX_PAUSE)
'''
_INT = '''def wait_for(response, default):
    """Seconds to wait: the server's own wish if it states one."""
    wish = response.headers.get("retry-after")
    if wish is None:
        return min(default, MAX_PAUSE)
    return min(float(int(wish)), MAX_PAUSE)
'''
_UTCNOW = '''def wait_for(response, default):
    """Seconds to wait: the server's own wish if it states one."""
    wish = response.headers.get("retry-after")
    if wish is None:
        return min(default, MAX_PAUSE)
    if wish.strip().isdigit():
        return min(float(int(wish)), MAX_PAUSE)
    return min((parsedate_to_datetime(wish) - datetime.utcnow()).total_seconds(), MAX_PAUSE)
'''
_MATCHED = '''def kind_of(wish):
    if wish is None:
        return "none"
    return "seconds" if wish.strip().isdigit() else "date"


def wait_for(response, default, clock=time.time):
    """Seconds to wait: the server's own wish if it states one that can be read."""
    wish = response.headers.get("retry-after")
    match kind_of(wish):
        case "none":
            pause = default
        case "seconds":
            pause = float(int(wish))
        case _:
            pause = _until(wish, default, clock())
    return max(0.0, min(pause, MAX_PAUSE))


def _until(wish, default, now):
    try:
        return parsedate_to_datetime(wish).timestamp() - now
    except (TypeError, ValueError):
        return default
'''
_PLAIN = '''def wait_for(response, default, clock=time.time):
    """Seconds to wait: the server's own wish if it states one that can be read."""
    wish = response.headers.get("retry-after")
    if wish is None:
        pause = default
    elif wish.strip().isdigit():
        pause = float(int(wish))
    else:
        pause = _until(wish, default, clock())
    return max(0.0, min(pause, MAX_PAUSE))
'''
_QUEUE_TEST = """from courier.config import Settings
from courier.queue import Queue


class Clock:
    def __init__(self):
        self.now = 1772614000.0

    def __call__(self):
        return self.now


def make_queue(tmp_path, clock):
    return Queue(Settings(queue_path=str(tmp_path / "q")), clock=clock)


def test_a_taken_message_is_hidden(tmp_path):
    queue = make_queue(tmp_path, Clock())
    queue.put("m-1", "hello")
    assert queue.take() == ("m-1", "hello")
    assert queue.take() is None


def test_a_long_pause_keeps_the_message(tmp_path):
    clock = Clock()
    queue = make_queue(tmp_path, clock)
    queue.put("m-1", "hello")
    queue.take()
    queue.extend("m-1", 31.0)
    clock.now += 31.0
    assert queue.take() is None
"""
_EXTEND = '''    def extend(self, message_id, seconds):
        """Keep a taken message for `seconds` more than its visibility: a second "take" line, which every reader knows."""
        _, body = self.taken[message_id]
        until = self.clock() + self.visibility + seconds
        self.taken[message_id] = (until, body)
        self._write(op="take", id=message_id, until=until)

    def done(self, message_id):
'''


def tell(desk: Desk, session: Recorder) -> None:
    _look_around(desk, session)
    _first_attempts(desk, session)
    _the_log(desk, session)
    _the_queue(desk, session)
    _old_python(desk, session)
    _wrap_up(desk, session)


def _look_around(desk: Desk, session: Recorder) -> None:
    session.user(
        "<system-reminder>AGENTS.md: run the tests before you say that something works.</system-reminder>",
        injected=True,
    )
    session.user(
        "Our webhook worker ignores Retry-After when a receiver answers 503 or 429. Please make courier honour it, both "
        "forms (seconds and HTTP date).\n\nConstraints:\n- Client.send is public, plugins override it: do not change its "
        "signature.\n- No new dependencies.\n- Never wait longer than MAX_PAUSE, whatever the server says.\n"
    )
    tree = "\n".join(f"{len(text):8d} {path}" for path, text in sorted(desk.files.items()))
    session.step(
        "I'll look at the project first.",
        desk.bash("git ls-files | xargs wc -c", tree),
        desk.bash(
            "git log --oneline | head -5", "8c41f7d queue: survive a full disk\n5ab90e2 release 2.3.0\n1f0de77 metrics"
        ),
        thinking="Retry-After handling: find where the pause is computed, then the tests, then the callers.",
    )
    session.step("", desk.read("courier/client.py"))
    session.step("", desk.read("courier/retry.py"), desk.read("courier/backoff.py"))
    session.step("", desk.read("courier/config.py"))
    session.step("", desk.grep(r"retry.after|Retry-After"))
    session.step("", desk.read("courier/wire.py"))
    session.step("", desk.read("tests/test_retry.py"))
    session.step(
        "The pause is computed in one place, `courier/retry.py`. Baseline first.",
        desk.pytest({"tests/test_retry.py::test_seconds_are_obeyed": "E   assert 1.0 == 120.0"}),
    )
    session.step("", desk.read("pyproject.toml"), desk.read("CHANGELOG.md"))
    session.step(
        "",
        desk.todo(
            ("Honour Retry-After in seconds", "in_progress"),
            ("Honour Retry-After as an HTTP date", "pending"),
            ("Cap at MAX_PAUSE, never negative", "pending"),
            ("Changelog", "pending"),
        ),
    )


def _first_attempts(desk: Desk, session: Recorder) -> None:
    date = "tests/test_retry.py::test_a_date_is_obeyed"
    session.step("Seconds first.", desk.edit("courier/retry.py", _FIRST, _INT))
    session.step("", desk.pytest({date: _NAIVE}))
    session.step(
        "Seconds work; `int()` cannot read the date form. Using `email.utils`.",
        desk.edit("courier/retry.py", _INT, _UTCNOW),
    )
    session.step("", desk.edit("courier/retry.py", "import re\n", "import re\nfrom datetime import datetime\n"))
    imports = '"""When to try again, and how long to wait before."""\n'
    more = imports + "\nimport time\nfrom datetime import datetime\nfrom email.utils import parsedate_to_datetime\n"
    session.step("The file has no imports at all yet.", desk.edit("courier/retry.py", imports, more))
    session.step("", desk.pytest({date: _AWARE}))
    session.step(
        "`datetime.utcnow()` is naive, the parsed date is aware (`courier/retry.py:24`). I'll compare timestamps against "
        "an injected clock instead, and fall back to the default on nonsense.",
        desk.edit("courier/retry.py", _UTCNOW, _MATCHED),
        desk.edit("courier/retry.py", "from datetime import datetime\n", ""),
        thinking="timestamp() on an aware datetime is unambiguous; clock=time.time as default keeps callers unchanged.",
    )
    session.step("", desk.pytest({}))
    for path in ("courier/client.py", "courier/retry.py"):
        session.step("", desk.read(path))
    session.step("`Client.send` is untouched. Checking the wire test table and metrics for assumptions about pauses.")
    session.user("ok. go on, also look at the rest of the callers", after=95)
    session.step("", desk.grep(r"wait_for|delay\("), desk.read("courier/worker.py"))
    session.step("", desk.read("tests/test_backoff.py"))
    session.step("", desk.read("tests/test_wire.py"))
    blame = "\n".join(
        f"{'8c41f7d5ab90e2'[n % 2 * 7 : n % 2 * 7 + 7]} (Rin {2025 + n % 2}-1{n % 3}-0{1 + n % 9}) {n:3d}) {line}"
        for n, line in enumerate(desk.files["courier/wire.py"].splitlines(), 1)
    )
    session.step("", desk.bash("git blame courier/wire.py", blame))
    session.step("Both forms of Retry-After are honoured, capped by MAX_PAUSE, and all tests pass on 3.11.")


def _the_log(desk: Desk, session: Recorder) -> None:
    session.user(
        "Before you go on: logs/delivery-2026-03-02.log shows some message ids delivered twice. Find out why. The queue's "
        "file format is read by other tools, so do not change the format: no new ops, no new keys.",
        after=1320,
    )
    session.step("", desk.read("logs/delivery-2026-03-02.log"), thinking="22 minutes passed. Look for repeated ids.")
    ids = [line.split("id=")[1].split()[0] for line in LOG.splitlines() if "delivered" in line]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    counted = "\n".join(f"      2 {name}" for name in twice)
    session.step(
        "", desk.bash("grep delivered logs/*.log | grep -o 'id=m-[0-9]*' | sort | uniq -c | awk '$1>1'", counted)
    )
    for name in twice[:4]:
        session.step("", desk.grep(f"id={name} ", "logs/"))
    session.step("", desk.grep("status=503", "logs/"))
    session.step("", desk.grep("ECONNREFUSED", "logs/"))
    session.step("", desk.read("courier/queue.py"))
    dump = "\n".join(
        f'{{"op": "{("put", "take", "done")[n % 3]}", "id": "m-{4100 + n // 3}", "at": {1772442000 + n * 2}.0'
        + (
            f', "until": {1772442030 + n * 2}.0}}'
            if n % 3 == 1
            else f', "body": "order-{n:05d} shipped"}}'
            if n % 3 == 0
            else "}"
        )
        for n in range(420)
    )
    session.step("", desk.bash("head -420 /var/lib/courier/courier.queue", dump))
    session.step("", desk.bash('grep -c \'"op": "take"\' /var/lib/courier/courier.queue', "16211"))
    session.step(
        "The pause before the retry is 31 s (`pause=31.x`), `visibility` is 30.0 s (`courier/config.py:14`): while a worker "
        "sleeps, `Queue._return_expired` hands the message to another worker. Honouring Retry-After makes this worse: "
        "pauses up to 900 s. A reproduction first.",
        desk.write("tests/test_queue.py", _QUEUE_TEST),
    )
    missing = "E   AttributeError: 'Queue' object has no attribute 'extend'"
    session.step(
        "",
        desk.pytest({"tests/test_queue.py::test_a_long_pause_keeps_the_message": missing}, under="tests/test_queue.py"),
    )


def _the_queue(desk: Desk, session: Recorder) -> None:
    path = "courier/queue.py"
    short = _EXTEND.replace("self.clock() + self.visibility + seconds", "self.clock() + seconds")
    session.step("", desk.edit(path, "    def done(self, message_id):\n", short))
    case = "tests/test_queue.py::test_a_long_pause_keeps_the_message"
    session.step("", desk.pytest({case: _TWICE}, under="tests/test_queue.py"))
    session.step(
        "Exactly at the end of the pause the message is visible again: the send itself needs time as well. The extension "
        "must add the visibility on top.",
        desk.edit(path, "self.clock() + seconds", "self.clock() + self.visibility + seconds"),
    )
    session.step("", desk.pytest({}, under="tests/test_queue.py"))
    session.step("", desk.grep(r"queue\.(take|done|extend)"), desk.grep(r"self\.sleep"))
    session.step(
        "The worker has the queue, the client sleeps; the signature of `send` must stay. The client already takes `sleep`: "
        "the worker can pass one that extends first.",
        desk.edit(
            "courier/worker.py",
            "        try:\n            client.send(Delivery(message_id, url, body))\n",
            "        client.sleep = _sleeper(queue, message_id, client.sleep)\n"
            "        try:\n            client.send(Delivery(message_id, url, body))\n",
        ),
        thinking="Assigning client.sleep repeatedly would nest the wrappers. Keep the original aside.",
    )
    session.step(
        "That nests one wrapper a message. Keeping the original sleep outside of the loop.",
        desk.edit(
            "courier/worker.py", "_sleeper(queue, message_id, client.sleep)", "_sleeper(queue, message_id, sleep)"
        ),
        desk.edit("courier/worker.py", "    delivered = 0\n", "    delivered = 0\n    sleep = client.sleep\n"),
    )
    helper = (
        "\n\ndef _sleeper(queue, message_id, sleep):\n    def pause(seconds):\n        queue.extend(message_id, seconds)\n"
        "        sleep(seconds)\n\n    return pause\n"
    )
    session.step("", desk.write("courier/worker.py", desk.files["courier/worker.py"] + helper))
    session.step("", desk.read("courier/worker.py"))
    session.step("", desk.pytest({}))
    diff = "\n".join(f"+{line}" for line in (_EXTEND + _PLAIN + helper + _QUEUE_TEST).splitlines())
    session.step("", desk.bash("git diff", f"diff --git a/courier/queue.py b/courier/queue.py\n{diff}"))
    session.step(
        "", desk.bash("git commit -qam 'queue: a pause keeps its message' && git rev-parse HEAD", "4f1c9ae02b7d")
    )
    session.step("Cause found and fixed in 4f1c9ae: the format is unchanged, an extension is one more `take` line.")


def _old_python(desk: Desk, session: Recorder) -> None:
    session.user(
        "Did you run it on 3.9? requires-python says >=3.9 and half of our fleet is there. 日志里的 ECONNREFUSED 可以先不管。",
        after=150,
    )
    session.step(
        "", desk.bash("python3.9 -m pytest -q", _MATCH, failed=True), thinking="match needs 3.10. I introduced it."
    )
    session.step("`match` is 3.10 syntax (`courier/retry.py:21`); plain branches then.", desk.read("courier/retry.py"))
    session.step("", _without_match(desk))
    session.step("", desk.pytest({}, python="3.9.19"))
    install = "\n".join(
        f"  Downloading courier_build_dep_{n:03d}-{1 + n % 4}.{n % 10}.{n % 7}-py3-none-any.whl ({40 + n * 7 % 300} kB)\n"
        f"Requirement already satisfied: step-{n:03d} in ./.tox/py3{9 + n % 4}/lib/python3.{9 + n % 4}/site-packages ({n}.0)"
        for n in range(150)
    )
    broken = "ERROR: py312: could not find interpreter python3.12\n  py39: OK\n  py310: OK\n  py311: OK\n  py312: SKIP"
    session.step("", desk.bash("tox", f"{install}\n{broken}", failed=True))
    session.step(
        "3.9 to 3.11 pass; 3.12 is not installed here, so that one is not tried.", desk.grep(r"\bmatch\b", "courier/")
    )
    session.step("", desk.pytest({}, under="tests/test_retry.py", python="3.10.14"))
    session.step(
        "", desk.bash("git commit -qam 'retry: plain branches, 3.9 again' && git rev-parse HEAD", "b27d6610cc58")
    )
    session.step("Runs on 3.9, 3.10 and 3.11 since b27d661. 3.12 is untested: no interpreter here.")


def _without_match(desk: Desk) -> Call:
    return desk.edit("courier/retry.py", _MATCHED[: _MATCHED.index("def _until")], f"{_PLAIN}\n\n")


def _wrap_up(desk: Desk, session: Recorder) -> None:
    session.user(
        "Good. Changelog, a test for the cap, and show me the final state of retry.py and queue.py.", after=210
    )
    cap = "\n\ndef test_the_cap_holds(respond):\n    assert retry.wait_for(respond(str(10**9)), default=1.0) == retry.MAX_PAUSE\n"
    session.step("", desk.write("tests/test_retry.py", desk.files["tests/test_retry.py"] + cap))
    past = "\n\ndef test_a_date_in_the_past_is_no_pause(respond):\n"
    past += '    assert retry.wait_for(respond("Mon, 02 Mar 2026 00:00:00 GMT"), default=1.0) == 0.0\n'
    session.step("", desk.write("tests/test_retry.py", desk.files["tests/test_retry.py"] + past))
    session.step("", desk.pytest({}, under="tests/test_retry.py"))
    session.step(
        "",
        desk.edit(
            "CHANGELOG.md",
            "# Changelog\n",
            "# Changelog\n\n## Unreleased\n- `Retry-After` is honoured, in seconds and as a date, up to `MAX_PAUSE`.\n"
            "- A message is no longer delivered twice when a pause is longer than `visibility`.\n",
        ),
    )
    session.step("", desk.read("courier/retry.py"), desk.read("courier/queue.py"))
    session.step("", desk.pytest({}), desk.pytest({}, python="3.9.19"))
    session.step(
        "",
        desk.bash(
            "git show --stat 4f1c9ae b27d661",
            "courier/queue.py | 8 ++\ncourier/retry.py | 31 +++--\ncourier/worker.py | 12 +-",
        ),
    )
    session.step(
        "",
        desk.todo(
            ("Honour Retry-After in seconds", "completed"),
            ("Honour Retry-After as an HTTP date", "completed"),
            ("Cap at MAX_PAUSE, never negative", "completed"),
            ("Changelog", "completed"),
        ),
    )
    session.step("", desk.bash("git commit -qam 'retry: changelog and the cap' && git rev-parse HEAD", "e05512d7a914"))
    session.step(
        "Done in e05512d. `Client.send` keeps its signature, no dependency was added, the queue's format is the old one. "
        "Open: ECONNREFUSED in the log, left alone as you asked; 3.12 untested."
    )
