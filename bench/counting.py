"""Counting. `python -m bench.counting` prints P6 and P6b; `--errors` the heuristic's error and the classifier's
verdicts by kind of text, `--families` the ratios of the vocabularies at hand to o200k.

The control arms of P6 are bpe-openai where it is installed, and tiktoken. tiktoken's rank files cannot be fetched
offline, so they are written from the vocabulary we count with; tiktoken refuses one whose sha256 is not its own.
"""

from __future__ import annotations

import argparse
import ast
import base64
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from types import ModuleType

from bench.figure import Figure, cpu, judge, rounds, table
from bench.workload import message
from transom.adapters.counter import BpeCounter, HeuristicCounter, classify
from transom.core.block import CONTENTS
from transom.core.calibration import Calibration, Counts, calibration_for

__all__ = ["run"]

_TIKTOKEN_GOAL = 2.8
"""0.9 times bpe-openai's lead over tiktoken on cl100k (14.5 to 4.7 MB/s on two cores), for where it is absent."""
_RANKS = "https://openaipublic.blob.core.windows.net/encodings/{}_base.tiktoken"


def run(scale: float = 1.0, seed: int = 1) -> list[Figure]:
    """All figures; `scale` makes the workloads smaller or larger."""
    dice = random.Random(seed)
    texts = [
        message(dice.getrandbits(32), max(60, int(dice.lognormvariate(7.2, 0.9)))) for _ in range(int(499 * scale))
    ]
    return [_speed(texts), _equal(texts), _per_step(texts, dice), _class_cost(), _learning_cost()]


def _speed(texts: Sequence[str]) -> Figure:
    counter = BpeCounter("o200k")
    counter.measure("the vocabulary is loaded")
    arms = {"ours": lambda: cpu(lambda: [counter._fresh(text) for text in texts])}
    tiktoken = _tiktoken("o200k")
    arms["tiktoken"] = lambda: cpu(lambda: [tiktoken(text) for text in texts])
    if importlib.util.find_spec("bpe_openai"):
        bpe = importlib.import_module("bpe_openai").get_encoding("o200k_base")
        arms["bpe-openai"] = lambda: cpu(lambda: [len(bpe.encode_ordinary(text)) for text in texts])
    spent = rounds(arms)
    size = sum(len(text.encode()) for text in texts) / 1e6
    control = "bpe-openai" if "bpe-openai" in spent else "tiktoken"
    least = 0.9 if control == "bpe-openai" else _TIKTOKEN_GOAL
    ratio = spent[control] / spent["ours"]
    return Figure(
        id="P6",
        what=f"counting and classifying new text, o200k, {size:.1f} MB",
        goal=f"at least {least} x {control}",
        value=f"{ratio:.1f} x",
        verdict=judge(ratio >= least),
        detail=", ".join(f"{name} {size / seconds:.1f} MB/s" for name, seconds in spent.items()),
    )


def _equal(texts: Sequence[str]) -> Figure:
    ours, theirs = BpeCounter("cl100k"), _tiktoken("cl100k")
    wrong = sum(ours.measure(text).tokens != theirs(text) for text in texts)
    return Figure(
        id="P6",
        what="equals tiktoken, cl100k",
        goal="every text",
        value=f"{len(texts) - wrong} of {len(texts)}",
        verdict=judge(not wrong),
    )


def _per_step(texts: Sequence[str], dice: random.Random) -> Figure:
    """The window's counts are a running sum: a step counts its two new texts and adds."""
    counter, calibration = BpeCounter("o200k"), calibration_for("claude-opus-4-5")
    held = _sum(counter, texts)
    new = [message(dice.getrandbits(32), 1700) for _ in range(60)]
    raw = counter._encoding
    assert raw is not None
    ours: list[float] = []
    floor: list[float] = []
    for first, second in zip(new[::2], new[1::2], strict=True):
        # The memo has not met the step's texts; the control counts all but their last character, so it stays so.
        start = time.process_time()
        raw.count(first[:-1])
        raw.count(second[:-1])
        middle = time.process_time()
        held = _add(held, _sum(counter, (first, second)))
        calibration.estimate(held, len(texts))
        ours.append(time.process_time() - middle)
        floor.append(middle - start)
    assert held == _sum(counter, [*texts, *new]), "the running sum is not the sum"
    extra = 1e3 * (median(ours) - median(floor))
    return Figure(
        id="P6b",
        what="counting a step: 1 MB held, two new texts of 1.7 kB, estimate in the model's tokens",
        goal="at most the two + 0.1 ms",
        value=f"+{extra:.3f} ms",
        verdict=judge(extra <= 0.1),
        detail=f"step {1e3 * median(ours):.3f} ms, the two alone {1e3 * median(floor):.3f} ms; sums equal",
    )


def _class_cost() -> Figure:
    texts = [f"    return {name}(self.{name}, {number})" for number, name in enumerate(["value"] * 20_000)]
    spent = rounds({"classify": lambda: cpu(lambda: [classify(text) for text in texts])})
    cost = 1e6 * spent["classify"] / len(texts)
    return Figure(
        id="-",
        what="classifying a short text",
        goal="3 us on an idle core",
        value=f"{cost:.2f} us",
        verdict="told",
    )


def _learning_cost() -> Figure:
    calibration = Calibration()
    counts: Counts = (100, 300, 0, 0, 50)
    turns = range(20_000)
    spent = rounds(
        {
            "observe": lambda: cpu(lambda: [calibration.observe(counts, 2, 600) for _ in turns]),
            "estimate": lambda: cpu(lambda: [calibration.estimate(counts, 2) for _ in turns]),
        }
    )
    observe, estimate = (1e6 * spent[name] / len(turns) for name in ("observe", "estimate"))
    return Figure(
        id="-",
        what="calibration: learning from a reply",
        goal="3 us on an idle core",
        value=f"{observe:.2f} us",
        verdict="told",
        detail=f"estimating {estimate:.2f} us",
    )


def _sum(counter: BpeCounter, texts: Sequence[str]) -> Counts:
    held: Counts = (0, 0, 0, 0, 0)
    for text in texts:
        measure = counter.measure(text)
        row = CONTENTS.index(measure.content)
        held = (*held[:row], held[row] + measure.tokens, *held[row + 1 :])  # type: ignore[assignment]
    return held


def _add(left: Counts, right: Counts) -> Counts:
    a, b, c, d, e = (x + y for x, y in zip(left, right, strict=True))
    return (a, b, c, d, e)


@functools.lru_cache
def _tiktoken(vocabulary: str) -> Callable[[str], int]:
    """tiktoken's count of ordinary text."""
    ours = importlib.import_module("quicktok").get_encoding(f"{vocabulary}_base")
    special = {text.encode() for text in ours.special_tokens_set}
    with tempfile.TemporaryDirectory(prefix="bench-counting-") as folder:
        lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in _tokens(ours) if token not in special]
        name = hashlib.sha1(_RANKS.format(vocabulary).encode()).hexdigest()
        (Path(folder) / name).write_bytes(b"".join(lines))
        os.environ["TIKTOKEN_CACHE_DIR"] = folder
        encoding = importlib.import_module("tiktoken").get_encoding(f"{vocabulary}_base")
    return lambda text: len(encoding.encode_ordinary(text))


def _tokens(encoding: ModuleType) -> Iterator[tuple[int, bytes]]:
    for rank in range(encoding.n_vocab):
        try:
            yield rank, encoding.decode_single_token_bytes(rank)
        except KeyError:  # a hole before the special tokens
            continue


# -- texts by kind, for errors and ratios

_CHINESE = (
    "窗口越小，代理看到的东西越清楚，犯的错误也越少。",
    "所有发生过的事情都按顺序写进日志，写进去以后就不再修改。",
    "如果磁盘满了或者进程被杀掉，重新打开时得到的是一个完整的前缀。",
    "工具返回的内容太长时，先把原文存成文件，窗口里只留下摘要和编号。",
    "缓存没有命中必须说明原因，否则就当作一次漂移来报告。",
    "用户最早提出的要求要原样保留，任何策略都不能改写它。",
    "这次测试失败是因为路径写错了，改成相对路径以后重新运行就通过了。",
    "交接文档分成四个部分：已经确认的要求、推断、冲突和尚未验证的内容。",
    "在每一步开始之前检查预算，超过上限就换一个新的窗口继续工作。",
    "请把数据库连接的超时时间改成三十秒，然后提交代码并更新文档。",
    "价格表里每一条记录都有日期和来源，没有公开价格的模型会注明是假设。",
    "日志服务在凌晨两点重启，期间丢失了大约十分钟的监控数据。",
)


def _kinds(dice: random.Random) -> dict[str, list[str]]:
    names = ("argparse", "asyncio", "collections", "dataclasses", "email", "inspect", "pathlib", "subprocess", "typing")
    modules = [importlib.import_module(name) for name in (*names, "ast", "csv", "json", "logging", "shutil", "tarfile")]
    sources = [inspect.getsource(module) for module in modules]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)]
    return {
        "Python": sources,
        "docstrings": [doc for doc in docs if len(doc) > 200],
        "Chinese": [_chinese(dice) for _ in range(40)],
        "logs": ["\n".join(_log(dice) for _ in range(dice.randrange(5, 200))) for _ in range(30)],
        "JSON": [json.dumps([_item(dice) for _ in range(80)], indent=dice.choice([None, 2])) for _ in range(30)],
        "base64": [base64.b64encode(dice.randbytes(dice.randrange(100, 20_000))).decode() for _ in range(30)],
        "hex": [dice.randbytes(dice.randrange(100, 10_000)).hex() for _ in range(30)],
    }


def _chinese(dice: random.Random) -> str:
    return "".join(dice.choices(_CHINESE, k=400))


def _log(dice: random.Random) -> str:
    at = f"2026-{dice.randrange(1, 13):02d}-{dice.randrange(1, 29):02d} 10:{dice.randrange(60):02d}:17"
    what = f"{dice.choice(['INFO', 'WARN', 'ERROR'])} worker-{dice.randrange(32)} request id={dice.getrandbits(32):08x}"
    return f"{at},{dice.randrange(1000):03d} {what} took {dice.random() * 900:.1f} ms from 10.0.{dice.randrange(256)}.7"


def _item(dice: random.Random) -> dict[str, object]:
    path = f"src/module{dice.randrange(99)}/file_{dice.randrange(999)}.py"
    return {"id": dice.randrange(10**6), "ok": dice.random() < 0.5, "path": path, "score": round(dice.random(), 4)}


def _pieces(dice: random.Random, texts: Sequence[str]) -> Iterator[str]:
    """Slices of 30 to 10,000 characters, short and long ones alike."""
    for _ in range(200):
        text, size = dice.choice(texts), int(10 ** dice.uniform(1.5, 4))
        start = dice.randrange(max(1, len(text) - size))
        yield text[start : start + size]


def _errors(seed: int) -> None:
    exact, guess = BpeCounter("o200k"), HeuristicCounter()
    dice = random.Random(seed)
    print(f"{'kind':12}{'median':>8}{'p90':>8}{'sum':>8}  classes")
    for kind, texts in _kinds(dice).items():
        pieces = list(_pieces(dice, texts))
        pairs = [(guess.measure(piece).tokens, exact.measure(piece).tokens) for piece in pieces]
        errors = [abs(ours - real) / real for ours, real in pairs]
        total = sum(ours for ours, _ in pairs) / sum(real for _, real in pairs) - 1
        classes = ", ".join(f"{name} {n / 2:.0f} %" for name, n in Tally(map(classify, pieces)).most_common())
        print(f"{kind:12}{median(errors):8.1%}{quantiles(errors, n=10)[8]:8.1%}{total:+8.1%}  {classes}")


def _families(seed: int) -> None:
    quicktok = importlib.import_module("quicktok")
    kinds = _kinds(random.Random(seed))
    base = quicktok.get_encoding("o200k_base")
    print(f"{'tokens per o200k token':24}" + "".join(f"{kind:>12}" for kind in kinds))
    for name in ("cl100k_base", "qwen3", "llama3"):
        other = quicktok.get_encoding(name)
        ratios = (sum(map(other.count, texts)) / sum(map(base.count, texts)) for texts in kinds.values())
        print(f"{name:24}" + "".join(f"{ratio:12.3f}" for ratio in ratios))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--families", action="store_true")
    options = parser.parse_args(arguments)
    if options.errors:
        _errors(options.seed)
    elif options.families:
        _families(options.seed)
    else:
        table(run(seed=options.seed), "Counting")


if __name__ == "__main__":
    main(sys.argv[1:])
