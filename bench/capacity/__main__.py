"""`python -m bench.capacity [GROUP...] [--json FILE]`: one line of JSON a group, with what it was measured on."""

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import capacity


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=capacity.__doc__)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(capacity.GROUPS)}; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the lines to a file")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.groups) - set(capacity.GROUPS)):
        parser.error(f"no such group: {', '.join(unknown)}")
    lines = []
    for group in arguments.groups or capacity.GROUPS:
        numbers = {name: round(value, 3) for name, value in capacity.measured(group).items()}
        lines.append(json.dumps({"group": group, "machine": _machine(), "seeds": capacity.seeds(group), **numbers}))
        print(lines[-1], flush=True)
    if arguments.json:
        arguments.json.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "muster": version("muster"),
        "load_5_min": round(os.getloadavg()[1], 2),
    }


if __name__ == "__main__":
    main()
