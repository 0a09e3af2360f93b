"""The command line from cold: whole processes, from exec to exit, as the one who types it waits for them.

Goals: `--help` under 150 ms, `validate` under 400 ms. The fastest of nine counts: whatever else the machine does only
adds.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import validate

ROUNDS = 9
_REPOSITORY = Path(__file__).resolve().parents[1]


def run() -> dict[str, float]:
    """Milliseconds of `--help`, of `validate` on the reference example and on 300 documents, and of python."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        for name, content in validate.repository().items():
            (Path(folder) / name).write_bytes(content)
        muster = _muster()
        return {
            "python_ms": _fastest_ms([sys.executable, "-c", "pass"]),
            "help_ms": _fastest_ms([*muster, "--help"]),
            "version_ms": _fastest_ms([*muster, "version"]),
            "validate_reference_ms": _fastest_ms([*muster, "validate", str(_REPOSITORY / "examples" / "reference")]),
            "validate_300_ms": _fastest_ms([*muster, "validate", folder]),
        }


def _muster() -> list[str]:
    """The console script of this installation, else the module."""
    script = Path(sys.executable).parent / "muster"
    return [str(script)] if script.exists() else [sys.executable, "-m", "agent"]


def _fastest_ms(command: Sequence[str]) -> float:
    taken = []
    cached = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as installed
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=_REPOSITORY, env=cached)
        taken.append(time.perf_counter() - began)
    return 1000 * min(taken)


if __name__ == "__main__":
    for label, value in run().items():
        print(f"{label:24} {value:12,.1f}")
