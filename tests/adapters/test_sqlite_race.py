"""L12 for a living log: processes that die at any instruction, and processes that race for the same session."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.adapters.sqlite_log import SqliteLog
from transom.core.block import Text
from transom.core.canon import FORMAT
from transom.core.event import Draft, Event, SessionOpened, UserSaid

# Appends for ever, one to three events at a time (every ninth too large for its row), with a search now and then, and
# says each acknowledged append in one short write: the seqs and the head's digest.
_WRITER = """
import os, random, sys
from pathlib import Path
from transom.adapters.blobs import DirBlobs
from transom.adapters.sqlite_log import SqliteLog
from transom.core.block import Text
from transom.core.event import Draft, UserSaid
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)
log = SqliteLog(folder / "log.db", DirBlobs(folder / "blobs", is_synced=False))
head = log.sessions("s")[0].head.seq
os.write(1, b"ready\\n")
while True:
    texts = [f"{seed} {head} {n} " + "x" * (140_000 if head % 9 == 0 else rng.randrange(4000)) for n in range(rng.randrange(1, 4))]
    drafts = [Draft(fact=UserSaid(blocks=(Text(text=text),)), uuid=f"{seed}.{head}.{n}", at=seed) for n, text in enumerate(texts)]
    events = log.append("s", head, drafts)
    head = events[-1].seq
    os.write(1, b"%d %s\\n" % (head, events[-1].digest.hex().encode()))
    if rng.randrange(12) == 0:
        log.search(f"{seed} {head}")
"""

# Looks at everything, as `transom sessions` does; says what it sees.
_VISITOR = """
import sys
from pathlib import Path
from transom import compose
with compose.store(Path(sys.argv[1])) as kept:
    kept.log.search("word")
    print(sum(row.head.seq for row in kept.log.sessions()))
"""

# Tries for 60 events; a lost race is taken up again from the new head. Says what it won.
_RACER = """
import sys
from pathlib import Path
from transom.adapters.blobs import DirBlobs
from transom.adapters.sqlite_log import SqliteLog
from transom.core.block import Text
from transom.core.event import Draft, UserSaid
from transom.errors import SequenceConflict
folder, name = Path(sys.argv[1]), sys.argv[2]
log = SqliteLog(folder / "log.db", DirBlobs(folder / "blobs", is_synced=False))
head, lost = 1, 0
print("ready", flush=True)
sys.stdin.readline()
for number in range(60):
    while True:
        draft = Draft(fact=UserSaid(blocks=(Text(text=f"{name} {number}"),)), uuid=f"{name}.{number}", at=0)
        try:
            head = log.append("s", head, [draft])[0].seq
            break
        except SequenceConflict as error:
            assert f"follow event {head}," in str(error)
            lost += 1
            head = log.sessions("s")[0].head.seq
    print(name, number, head)
print("lost", lost)
log.close()
"""


def log_in(folder: Path) -> SqliteLog:
    return SqliteLog(folder / "log.db", DirBlobs(folder / "blobs", is_synced=False))


def begin(folder: Path) -> None:
    with log_in(folder) as log:
        log.append("s", 0, [Draft(fact=SessionOpened(format=FORMAT), uuid="0", at=0)])


def visited(folder: Path) -> int:
    """What another process sees: the seq of all heads together."""
    done = subprocess.run([sys.executable, "-c", _VISITOR, str(folder)], check=True, capture_output=True, text=True)
    return int(done.stdout)


def killed(folder: Path, seed: int, seconds: float, *, is_visited: bool = False) -> list[tuple[int, str]]:
    """Start a writer, kill it after so long, and return what it had said by then. `is_visited`: another process looks
    at the log meanwhile."""
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(folder), str(seed)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    with writer, writer.stdout:
        assert writer.stdout.readline() == b"ready\n"
        if is_visited:
            assert visited(folder)
        time.sleep(seconds)
        os.kill(writer.pid, signal.SIGKILL)
        lines = writer.stdout.read().decode().splitlines()
    assert writer.returncode == -signal.SIGKILL
    return [(int(seq), digest) for seq, digest in (line.split() for line in lines)]


def is_possible(event: Event) -> bool:
    """Whether a writer could have appended this event: its uuid names its seed and place, and its text repeats them."""
    if not isinstance(event.fact, UserSaid):
        return event.seq == 1
    seed, head, number = event.uuid.split(".")
    block = event.fact.blocks[0]
    is_whole = isinstance(block, Text) and block.text.startswith(f"{seed} {head} {number} ")
    return is_whole and event.at == int(seed) and event.seq == int(head) + int(number) + 1


def survive(folder: Path, kills: int) -> None:
    begin(folder)
    rng = random.Random(kills)
    digests: dict[int, str] = {}
    for seed in range(1, kills + 1):
        acknowledged = killed(folder, seed, rng.random() * 0.08, is_visited=seed % 5 == 0)
        with log_in(folder) as log:
            digests.update(dict(acknowledged))
            after = acknowledged[0][0] - 3 if acknowledged and kills > 20 else 0
            stored = {event.seq: event for event in log.read("s", max(0, after))}
            assert all(is_possible(event) for event in stored.values())
            for seq, digest in acknowledged:
                assert stored[seq].digest.hex() == digest
            last = log.sessions("s")[0].head.seq
            if acknowledged:
                # At most the one append that was committed and not yet said.
                assert 0 <= last - acknowledged[-1][0] <= 3
                assert log.search(f"{seed} {last}") or last in stored
            if seed % 10 == 0:
                assert [row.problem for row in log.verify()] == [""]
    with log_in(folder) as log:
        whole = {event.seq: event.digest.hex() for event in log.read("s")}
    assert len(digests) > kills
    assert {seq: whole[seq] for seq in digests} == digests


def test_a_killed_writer_loses_nothing_it_acknowledged_l12(tmp_path: Path) -> None:
    survive(tmp_path, 10)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_hundred_kills_lose_nothing_acknowledged_l12(tmp_path: Path) -> None:
    survive(tmp_path, 200)


def test_who_looks_at_a_log_in_use_takes_nothing_from_it_l12(tmp_path: Path) -> None:
    """SQLite's locks are the process's own: were the file opened beside it, the visitor would delete a WAL in use."""
    begin(tmp_path)
    head = 1
    with log_in(tmp_path) as one, log_in(tmp_path) as other:
        for number in range(6):
            log = (one, other)[number % 2]
            said = UserSaid(blocks=(Text(text=f"word {number}"),))
            (event,) = log.append("s", head, [Draft(fact=said, uuid=str(number), at=0)])
            head = event.seq
            assert visited(tmp_path) == head
            assert len({(tmp_path / name).stat().st_ino for name in ("log.db", "log.db-wal", "log.db-shm")}) == 3
    with log_in(tmp_path) as log:
        assert [event.seq for event in log.read("s")] == [*range(1, 8)]
        assert len(log.search("word")) == 6


def test_of_two_processes_exactly_one_wins_each_seq(tmp_path: Path) -> None:
    begin(tmp_path)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    outputs = []
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        outputs.append(racer.communicate(timeout=120)[0])
        assert racer.returncode == 0
    won = {}
    for output in outputs:
        for line in output.splitlines()[:-1]:
            name, number, seq = line.split()
            assert seq not in won
            won[seq] = f"{name}.{number}"
    with log_in(tmp_path) as log:
        assert {str(event.seq): event.uuid for event in log.read("s", 1)} == won
        assert len(won) == 120
        assert [row.problem for row in log.verify()] == [""]
        assert len(log.search("a 59")) == 1
