"""The seeded workload every bench shares: what a coding agent's session is made of.

Sizes are log-normal about `mean` bytes of text an event; of the results 55 % are source code, 20 % logs, 15 % JSON,
7 % grep output and 3 % Chinese prose. Every third event is a model's call with a sentence, every hundredth a user's.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from math import exp

from transom.adapters.counter import open_counter
from transom.core.block import Text, ToolCall, ToolResultRaw
from transom.core.canon import FORMAT
from transom.core.event import Draft, Fact, ModelReplied, SessionOpened, ToolReturned, Usage, UserSaid

__all__ = ["conversation", "events", "message", "opened"]

_VOCABULARY = """
    budget window handle append digest chain event session parse render offset token cache prefix result error retry
    limit worker queue thread commit branch config server client request response header stream buffer index query
"""
_WORDS = tuple(_VOCABULARY.split())
_CJK = "上下文窗口压缩模型缓存事件日志检查点边界摘要预算任务失败成功文件路径错误测试运行提交"
_RESULTS = (
    1500  # different results of a conversation, about 5 MB; a longer one tells them again, so that it can be made
)
_TURN = 102  # a user's words, fifty calls and results, an answer
_FILES = 400  # of the repository that a conversation is about
_SIGMA = 0.9  # the spread of tool results: the 90th percentile is about five times the median, as in recorded sessions


def opened(title: str = "workload") -> Draft:
    """The first event of a session."""
    return Draft(fact=SessionOpened(format=FORMAT, agent="bench", title=title), uuid="opened", at=0)


def events(count: int, seed: int = 1, mean: int = 1700) -> list[Draft]:
    """`count` drafts without an opening. Same arguments, same drafts."""
    rng = random.Random(seed)
    return [
        Draft(fact=_fact(rng, number, mean), uuid=f"{rng.getrandbits(128):032x}", at=1_700_000_000_000 + 900 * number)
        for number in range(count)
    ]


def conversation(count: int, seed: int = 1, mean: int = 1700, *, reports: bool = True) -> Iterator[Draft]:
    """`count` drafts without an opening: a user's words, then calls each followed by its result, all counted, and after
    fifty of those an answer. With `reports` each
    reply reports the prompt of a window that holds all before it."""
    rng = random.Random(seed)
    measure = open_counter().measure
    pool = _results(seed, mean, min(count, _RESULTS))
    paths = [_path(rng) for _ in range(_FILES)]
    prompt = 6000
    call_id = ""
    for number in range(count):
        fact: Fact
        if number % _TURN == 0:
            said = _prose(rng, 400)
            fact = UserSaid(blocks=(Text(text=said, tokens=measure(said).tokens),))
        elif number % _TURN == _TURN - 1:
            said = _prose(rng, 120)
            fact = ModelReplied(
                blocks=(Text(text=said, tokens=measure(said).tokens),), model="bench", stop_reason="end_turn"
            )
        elif not call_id:
            call_id = f"call_{number}"
            said, arguments = _prose(rng, 120), json.dumps({"path": rng.choice(paths), "start": rng.randrange(900)})
            call = ToolCall(call_id=call_id, name="read_file", arguments=arguments, tokens=measure(arguments).tokens)
            words = Text(text=said, tokens=measure(said).tokens)
            output = words.tokens + call.tokens
            usage = Usage(uncached=900, cached=prompt - 900, output=output) if reports else Usage(output=output)
            fact = ModelReplied(blocks=(words, call), model="bench", stop_reason="tool_use", usage=usage)
        else:
            fact = ToolReturned(call_id=call_id, blocks=(pool[number % len(pool)],), effect="read")
            call_id = ""
        prompt += sum(block.tokens for block in fact.blocks) + 6
        yield Draft(fact=fact, uuid=f"{rng.getrandbits(128):032x}", at=1_700_000_000_000 + 900 * number)


@lru_cache(maxsize=2)
def _results(seed: int, mean: int, count: int) -> list[ToolResultRaw]:
    rng = random.Random(seed)
    measure = open_counter().measure
    made = []
    for _ in range(count):
        # Results are half of the messages, so they carry twice the mean.
        text = _text(rng, max(40, int(rng.lognormvariate(0, _SIGMA) * 1.8 * mean / exp(_SIGMA**2 / 2))))
        found = measure(text)
        made.append(ToolResultRaw(text=text, tokens=found.tokens, content=found.content))
    return made


def message(seed: int, size: int) -> str:
    """One text of about `size` bytes."""
    rng = random.Random(seed)
    return _text(rng, size)


def _fact(rng: random.Random, number: int, mean: int) -> Fact:
    if number % 100 == 0:
        return UserSaid(blocks=(Text(text=_prose(rng, 400), tokens=90),))
    if number % 3 == 1:
        arguments = json.dumps({"path": _path(rng), "start": rng.randrange(900), "pattern": _name(rng)})
        call = ToolCall(call_id=f"call_{number}", name="read_file", arguments=arguments, tokens=30)
        usage = Usage(uncached=900, cached=30_000, output=120)
        return ModelReplied(
            blocks=(Text(text=_prose(rng, 200), tokens=45), call), model="bench", stop_reason="tool_use", usage=usage
        )
    # The calls are small, so results carry the mean: e^(sigma^2/2) is the ratio of a log-normal's mean to its median.
    size = int(rng.lognormvariate(0, _SIGMA) * 1.35 * mean / exp(_SIGMA**2 / 2))
    text = _text(rng, max(40, size))
    return ToolReturned(call_id=f"call_{number}", blocks=(ToolResultRaw(text=text, tokens=len(text) // 4),))


def _text(rng: random.Random, size: int) -> str:
    kinds: list[Callable[[random.Random, int], str]] = [_code, _log, _json, _grep, _chinese]
    return rng.choices(kinds, (55, 20, 15, 7, 3))[0](rng, size)


def _fill(rng: random.Random, size: int, line: Callable[[random.Random], str]) -> str:
    lines: list[str] = []
    total = 0
    while total < size:
        lines.append(line(rng))
        total += len(lines[-1]) + 1
    return "\n".join(lines)


def _name(rng: random.Random) -> str:
    first, second = rng.choice(_WORDS), rng.choice(_WORDS)
    style = rng.randrange(4)
    number = rng.randrange(3000)
    return (f"{first}_{second}", f"{first.title()}{second.title()}", f"{first}{number}", f"_{first}_{second}_{number}")[
        style
    ]


def _path(rng: random.Random) -> str:
    return f"src/{rng.choice(_WORDS)}/{_name(rng)}.py"


def _prose(rng: random.Random, size: int) -> str:
    return _fill(rng, size, lambda r: " ".join(r.choices(_WORDS, k=12)) + f" in {_path(r)}.")[: size + 80]


def _code(rng: random.Random, size: int) -> str:
    def line(r: random.Random) -> str:
        form = r.randrange(3)
        if form == 0:
            return f"    {_name(r)} = {_name(r)}({r.choice(_WORDS)}, {r.randrange(100)})"
        if form == 1:
            return f"def {_name(r)}(self, {r.choice(_WORDS)}: int) -> {_name(r)}:"
        return f"        if {_name(r)} is not None and {r.choice(_WORDS)} >= {r.randrange(9999)}:"

    return _fill(rng, size, line)


def _log(rng: random.Random, size: int) -> str:
    return _fill(
        rng,
        size,
        lambda r: (
            f"2026-03-0{r.randrange(1, 9)}T1{r.randrange(9)}:{r.randrange(10, 59)}:07.{r.randrange(999):03} "
            f"{r.choice(('INFO', 'WARN', 'ERROR'))} {_name(r)}: {' '.join(r.choices(_WORDS, k=5))} "
            f"id={r.getrandbits(48):x}"
        ),
    )


def _json(rng: random.Random, size: int) -> str:
    return _fill(
        rng,
        size,
        lambda r: json.dumps(
            {r.choice(_WORDS): _name(r), "id": r.getrandbits(40), "ok": r.random() < 0.5, "path": _path(r)}
        ),
    )


def _grep(rng: random.Random, size: int) -> str:
    return _fill(rng, size, lambda r: f"{_path(r)}:{r.randrange(2000)}:    return {_name(r)}({_name(r)})")


def _chinese(rng: random.Random, size: int) -> str:
    # Three bytes a character.
    return _fill(rng, size // 3, lambda r: "".join(r.choices(_CJK, k=30)) + f"（{_name(r)}）。")
