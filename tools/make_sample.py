"""Writes the sample session that ships with the package: a made-up day of work, in the form Claude Code records.

    python tools/make_sample.py [FOLDER]

Same bytes on every run (gzip's own framing aside). Nothing in it came from a model or from anyone's transcript.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import sample_story
from sample_desk import Desk, Recorder

__all__ = ["build", "main"]

FOLDER = Path(__file__).resolve().parents[1] / "src" / "transom" / "data" / "sample"
NAME = "fix-retry-after.jsonl.gz"


def build() -> bytes:
    """The whole session as JSONL."""
    recorder = Recorder()
    sample_story.tell(Desk(), recorder)
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in recorder.records]
    return "".join(lines).encode()


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    data = build()
    packed = gzip.compress(data, 9, mtime=0)
    (folder / NAME).write_bytes(packed)
    print(f"{folder / NAME}: {len(data.splitlines())} records, {len(data)} bytes, {len(packed)} packed")


if __name__ == "__main__":
    main()
