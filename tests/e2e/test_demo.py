"""`muster demo` as a newcomer runs it: ends by itself, in time, with every expectation held."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_S = 180.0


@pytest.mark.e2e
def test_the_demo_holds(tmp_path: Path) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "agent", "demo", "--dir", str(tmp_path / "demo")],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=2 * MOST_S,
        check=False,
    )
    took_s = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    assert took_s < MOST_S
    assert "expectations held" in done.stdout
    for heading in ("Gangs", "Machines bought and returned", "Cost by team"):
        assert heading in done.stdout
    assert "\x1b" not in done.stdout, "plain when piped"
