"""Writes `tests/data/github-openapi.json`: GitHub's description of its REST API, cut down to what Muster asks.

It is taken from the package `@octokit/openapi` (MIT), GitHub's official description with its changes by Octokit; kept
are the operations below with the schemas that they lead to, without prose and examples. Run it with the package:

    npm pack @octokit/openapi@23.0.2
    python -m tools.github_description octokit-openapi-23.0.2.tgz 2026-09-09
"""

import json
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).parents[1] / "tests/data/github-openapi.json"
_MEMBER: Final = "package/generated/api.github.com.json"
_HERE: Final = "/repos/{owner}/{repo}"
OPERATIONS: Final = {
    "/app": ("get",),
    "/app/installations/{installation_id}/access_tokens": ("post",),
    "/orgs/{org}/teams/{team_slug}": ("get",),
    "/orgs/{org}/teams/{team_slug}/memberships/{username}": ("get",),
    "/user": ("get",),
    f"{_HERE}/check-runs": ("post",),
    f"{_HERE}/check-runs/{{check_run_id}}": ("get", "patch"),
    f"{_HERE}/check-runs/{{check_run_id}}/annotations": ("get",),
    f"{_HERE}/collaborators/{{username}}/permission": ("get",),
    f"{_HERE}/commits/{{commit_sha}}/pulls": ("get",),
    f"{_HERE}/commits/{{ref}}/check-runs": ("get",),
    f"{_HERE}/commits/{{ref}}/statuses": ("get",),
    f"{_HERE}/contents/{{path}}": ("get", "put"),
    f"{_HERE}/deployments": ("get", "post"),
    f"{_HERE}/deployments/{{deployment_id}}/statuses": ("get", "post"),
    f"{_HERE}/git/refs": ("post",),
    f"{_HERE}/issues/comments/{{comment_id}}": ("get", "patch"),
    f"{_HERE}/issues/comments/{{comment_id}}/reactions": ("get", "post"),
    f"{_HERE}/issues/{{issue_number}}/comments": ("get", "post"),
    f"{_HERE}/pulls": ("get", "post"),
    f"{_HERE}/pulls/{{pull_number}}": ("get", "patch"),
    f"{_HERE}/pulls/{{pull_number}}/reviews": ("get",),
    f"{_HERE}/statuses/{{sha}}": ("post",),
}
_PROSE: Final = frozenset(
    (
        "description",
        "example",
        "examples",
        "externalDocs",
        "operationId",
        "summary",
        "tags",
        "title",
        "x-github",
        "x-octokit",
    )
)
_NAMED: Final = frozenset(("properties", "schemas", "responses", "parameters", "headers"))
"""Below these, keys are names of theirs and no words of OpenAPI."""


def main(package: Path, published: str) -> None:
    """Write the file."""
    with tarfile.open(package) as archive:
        member = archive.extractfile(_MEMBER)
        if member is None:
            raise SystemExit(f"{package} holds no {_MEMBER}")
        whole: dict[str, Any] = json.load(member)
    paths = {path: {method: whole["paths"][path][method] for method in kept} for path, kept in OPERATIONS.items()}
    found: dict[str, dict[str, Any]] = {}
    _collect(_plain(paths), whole["components"], found)
    source = {"package": f"@octokit/openapi {whole['info']['version']}", "published": published, "license": "MIT"}
    document = {"openapi": whole["openapi"], "x-source": source, "paths": _plain(paths), "components": found}
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _collect(node: Any, components: dict[str, Any], found: dict[str, dict[str, Any]]) -> None:
    """Put everything that `node` refers to into `found`."""
    if isinstance(node, list):
        for item in node:
            _collect(item, components, found)
    elif isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            _, _, kind, name = reference.split("/")
            if name not in found.setdefault(kind, {}):
                found[kind][name] = _plain(components[kind][name])
                _collect(found[kind][name], components, found)
        for item in node.values():
            _collect(item, components, found)


def _plain(node: Any, *, are_names: bool = False) -> Any:
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _plain(value, are_names=key in _NAMED and not are_names)
        for key, value in node.items()
        if are_names or key not in _PROSE
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
