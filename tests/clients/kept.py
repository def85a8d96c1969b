"""What a store holds of a run: that it verifies, its windows and verdicts, and what of the client's bytes it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.clients import sense
from tests.clients.tap import Seen

from transom import compose
from transom.core.event import Event, Observed, RequestSent, SessionOpened, WindowOpened

__all__ = ["Kept"]

_LISTS = ("messages", "input")


class Kept:
    """Of a store that nobody writes any more. `sessions` are their events by id, those of a fork with its parent's."""

    def __init__(self, store: Path) -> None:
        with compose.store(store) as opened:
            self.problems = [one.problem for one in opened.log.verify() if one.problem]
            self.sessions = {row.session_id: list(opened.log.read(row.session_id)) for row in opened.log.sessions()}

    def facts(self, kind: type[Any], session_id: str = "") -> list[Any]:
        return [event.fact for event in self._events(session_id) if isinstance(event.fact, kind)]

    def _events(self, session_id: str) -> Iterator[Event]:
        for one, events in self.sessions.items():
            if session_id in {"", one}:
                yield from events

    def once(self) -> Iterator[Event]:
        """All events, those that a fork has of its parent once."""
        return iter({event.uuid: event for event in self._events("")}.values())

    def rollovers(self, session_id: str) -> list[str]:
        """The causes of its windows but the first, in order."""
        return [fact.cause for fact in self.facts(WindowOpened, session_id)]

    def verdicts(self, session_id: str = "") -> dict[str, int]:
        """How many requests were a hit, a named miss, drift."""
        found: dict[str, int] = {}
        for fact in self.facts(RequestSent, session_id):
            found[fact.verdict] = found.get(fact.verdict, 0) + 1
        return found

    def named(self, session_id: str) -> list[str]:
        """The reasons of its misses but the first."""
        return [" ".join(fact.reasons) for fact in self.facts(RequestSent, session_id) if fact.verdict == "miss"][1:]

    def roots(self) -> list[str]:
        """Sessions that continue no other one."""
        return [one for one, events in self.sessions.items() if self.opened(events).kind == "root"]

    @staticmethod
    def opened(events: list[Event]) -> SessionOpened:
        """A session's own opening: the last one, since a fork has its parent's too."""
        return [event.fact for event in events if isinstance(event.fact, SessionOpened)][-1]

    def lacking(self, seen: tuple[Seen, ...]) -> list[str]:
        """What the client sent or got and no fact holds, with what it was in. An element that comes again with other
        marks or under another id is known again, and held as it came first.

        Where the gateway was killed nobody could write on. What had no status by then may never have been read, and the
        client sends it again; an answer that was cut is held by nobody but the client, which throws it away, and a
        request beside the main loop is held once its answer came."""
        observed = self.facts(Observed)
        raw = {fact.raw for fact in observed}
        asked = [json.loads(fact.raw) for fact in observed if fact.kind == "client_request"]
        new = [one for fact in asked for one in fact["elements"]]
        new += [one for fact in asked for name in _LISTS for one in fact.get("rest", {}).get(name, ())]
        elements = {json.dumps(sense.meaning(one), sort_keys=True) for one in new}
        fields = {(name, json.dumps(value)) for fact in asked for name, value in fact.get("rest", {}).items()}
        answers = {json.loads(fact.raw)["data"] for fact in observed if fact.kind == "client_answer"}
        found: list[str] = []
        for number, one in enumerate(seen):
            if one.method != "POST" or one.status != 200 or one.said == "relayed":
                continue  # what is relayed is no request of a model, such as one to count tokens
            answer = one.answer.decode()
            if one.said in {"side", "compaction"}:
                if not one.is_whole:
                    continue
                whole = [one.body.decode() in raw, f"200 {answer}" in raw]
                found.extend(
                    f"{number}: a {part} beside"
                    for part, kept in zip(("request", "answer"), whole, strict=True)
                    if not kept
                )
                continue
            if one.is_whole and answer not in answers:
                found.append(f"{number}: the answer")
            for name, value in one.json().items():
                if name in _LISTS and isinstance(value, list):
                    texts = (json.dumps(sense.meaning(element), sort_keys=True) for element in value)
                    found.extend(
                        f"{number}: {name}[{place}]" for place, text in enumerate(texts) if text not in elements
                    )
                elif (name, json.dumps(value)) not in fields:
                    found.append(f"{number}: {name}")
        return found
