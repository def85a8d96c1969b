"""`python -m bench [NAME…] [--scale X] [--seed N]`: the figures of `store`, `counting`, `importing`, `kernel`, `live`,
`lab` and `start`, or of those named, each with its goal and verdict. All take about six minutes on two busy cores."""

from __future__ import annotations

import argparse
from time import perf_counter

from bench import counting, importing, kernel, lab, live, start, store
from bench.figure import table

_ROOMS = {
    "store": store.run,
    "counting": counting.run,
    "importing": importing.run,
    "kernel": kernel.run,
    "live": live.run,
    "lab": lab.run,
    "start": start.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(_ROOMS))
    parser.add_argument("--scale", type=float, default=1.0, help="size of the workloads")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in _ROOMS]:
        parser.error(f"no benchmark is called {unknown[0]}; there are {', '.join(_ROOMS)}")
    for name in options.names or _ROOMS:
        began = perf_counter()
        figures = _ROOMS[name](options.scale, options.seed)
        table(figures, f"{name}, {perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
