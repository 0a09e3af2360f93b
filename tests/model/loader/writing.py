"""Declarations written in one line."""

from textwrap import dedent

HEAD = "apiVersion: muster.dev/v1alpha1\n"


def declare(kind: str, name: str, spec: str = "{}") -> str:
    """One document; `spec` is YAML, in flow style or indented."""
    body = dedent(spec).strip()
    below = f" {body}" if body.startswith("{") else "\n" + "\n".join("  " + line for line in body.splitlines())
    return f"{HEAD}kind: {kind}\nmetadata: {{name: {name}}}\nspec:{below}\n"
