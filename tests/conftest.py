"""What every test may ask for: the shared transcripts, a real model's file, and Hypothesis profiles.

`HYPOTHESIS_PROFILE=slow` (what `make test-slow` sets) gives 2,000 examples a law; the default is small enough for a
suite of about a minute. In CI the examples are derived from the test itself, so that a red run can be repeated.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

__all__ = ["real_model", "shared"]

_ROOT = Path(__file__).resolve().parents[1]
_ABSENT = "shared transcripts absent"

# A shell starts what it puts in the background with Ctrl-C ignored, and every process below inherits that: the commands
# these tests interrupt would never hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Both cores are busy under xdist, so a slow draw says nothing about the strategy.
_CALM = (HealthCheck.too_slow,)
settings.register_profile(
    "default",
    deadline=None,
    max_examples=50,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=_CALM,
)
settings.register_profile("slow", deadline=None, max_examples=2000, suppress_health_check=_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Recorded sessions: `data/transcripts` in the folder `TRANSOM_SHARED` names, else in the one beside the repository."""
    folder = Path(os.environ.get("TRANSOM_SHARED") or _ROOT.parent / "shared") / "data" / "transcripts"
    if not folder.is_dir():
        pytest.skip(_ABSENT)
    return folder


@pytest.fixture(scope="session")
def real_model() -> Path:
    """Qwen2.5-Coder 0.5B as a GGUF file in `TRANSOM_MODELS`, fetched (491 MB) by the script beside the transcripts."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp absent: pip install 'transom[local]'")
    script = Path(os.environ.get("TRANSOM_SHARED") or _ROOT.parent / "shared") / "tools" / "get_model.py"
    if not script.is_file():
        pytest.skip("the script that fetches a model is absent")
    folder = os.environ.get("TRANSOM_MODELS") or Path(tempfile.gettempdir()) / "transom-models"
    done = subprocess.run([sys.executable, script, "qwen0.5b", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the model cannot be fetched: {done.stderr.strip()[-200:]}")
    return Path(done.stdout.strip().splitlines()[-1])
