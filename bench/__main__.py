"""`python -m bench [NAME…] [--scale X] [--seed N]`: the figures of `store`, `counting`, `importing`, `kernel`, `cache`,
`live`, `lab`, `regret`, `start`, `gateway` and `generations`, or of those named, each with its goal and verdict. All
take about ten minutes on two busy cores."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from bench import cache, counting, gateway, generations, importing, kernel, lab, live, regret, start, store
from bench.figure import Figure, table

_Room = Callable[[float, int], list[Figure]]
_ROOMS: dict[str, _Room] = {
    "store": store.run,
    "counting": counting.run,
    "importing": importing.run,
    "kernel": kernel.run,
    "cache": cache.run,
    "live": live.run,
    "lab": lab.run,
    "regret": regret.run,
    "start": start.run,
    "gateway": gateway.run,
    "generations": generations.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(_ROOMS))
    parser.add_argument("--scale", type=float, default=1.0, help="size of the workloads")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--measure", type=Path, metavar="PATH", help="generations: first measure the loss in recordings"
    )
    parser.add_argument("--local", type=Path, metavar="FILE", help="generations: hand over by the model in a GGUF file")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in _ROOMS]:
        parser.error(f"no benchmark is called {unknown[0]}; there are {', '.join(_ROOMS)}")
    told = partial(generations.run, recordings=options.measure, local=options.local)
    rooms: dict[str, _Room] = {**_ROOMS, "generations": told}
    for name in options.names or _ROOMS:
        began = perf_counter()
        figures = rooms[name](options.scale, options.seed)
        table(figures, f"{name}, {perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
