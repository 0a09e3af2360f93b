"""Writes `tests/data/github-webhooks.json`: GitHub's example deliveries, each cut down to what tells it from others.

They are taken from the package `@octokit/webhooks-examples` (MIT), payloads that GitHub has sent. Of each kind of event
and action one is kept, with the few fields below. Run it with the package:

    npm pack @octokit/webhooks-examples@7.6.1
    python -m tools.webhook_examples octokit-webhooks-examples-7.6.1.tgz 2026-11-27
"""

import json
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).parents[1] / "tests/data/github-webhooks.json"
_MEMBER: Final = "package/api.github.com/index.json"
_KEPT: Final = (
    ("action",), ("ref",), ("after",), ("number",), ("zen",), ("repository", "full_name"), ("sender", "login"),
    ("pull_request", "number"), ("pull_request", "merged"), ("pull_request", "head", "sha"),
    ("pull_request", "base", "ref"), ("issue", "number"), ("comment", "id"), ("comment", "body"), ("review", "state"),
)  # fmt: skip


def trimmed(payload: dict[str, Any]) -> dict[str, Any]:
    """Returns a payload with nothing but the fields that are kept."""
    found: dict[str, Any] = {}
    for path in _KEPT:
        value: Any = payload
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            continue
        held = found
        for key in path[:-1]:
            held = held.setdefault(key, {})
        held[path[-1]] = value
    return found


def main(package: str, date: str) -> None:
    """Writes the file from a package that was fetched on a day."""
    with tarfile.open(package) as archive:
        examples, about = (archive.extractfile(name) for name in (_MEMBER, "package/package.json"))
        if examples is None or about is None:
            raise SystemExit(f"{package} is not the package")
        groups, version = json.load(examples), json.load(about)["version"]
    kept = {(it["name"], one.get("action", "")): trimmed(one) for it in groups for one in reversed(it["examples"])}
    deliveries = [{"event": event, "payload": payload} for (event, _), payload in sorted(kept.items())]
    source = f"@octokit/webhooks-examples {version} (MIT), api.github.com, fetched {date}"
    TARGET.write_text(json.dumps({"source": source, "deliveries": deliveries}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
