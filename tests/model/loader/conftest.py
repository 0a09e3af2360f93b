"""Small fleets written in place."""

from collections.abc import Callable, Sequence
from textwrap import dedent

import pytest

from model.loader import inspect
from model.problem import Problem

Lines = Sequence[str]
HEAD = "apiVersion: muster.dev/v1alpha1\n"


def declare(kind: str, name: str, spec: str = "{}") -> str:
    """One document; `spec` is YAML, in flow style or indented."""
    body = dedent(spec).strip()
    below = f" {body}" if body.startswith("{") else "\n" + "\n".join("  " + line for line in body.splitlines())
    return f"{HEAD}kind: {kind}\nmetadata: {{name: {name}}}\nspec:{below}\n"


@pytest.fixture
def problems() -> Callable[..., list[Problem]]:
    """Loads documents as one file and returns the problems."""

    def run(*documents: str) -> list[Problem]:
        return list(inspect({"f.yaml": "---\n".join(documents).encode()}).problems)

    return run
