"""Writes the CustomResourceDefinitions: `python -m tools.crds deploy/crds`.

What of a definition stands for a declaration in git (`spec` of Queue and NodePool) follows from the model, so that
`kubectl explain` knows every field; it is written into the package's own files. Then all of them are copied.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from model.kinds import Kind, NodePool, Queue
from providers.kube.objects.crds import NAMES
from tools.schema import schema_of

SOURCES: Final = Path(__file__).resolve().parents[1] / "providers" / "kube" / "objects" / "crds"
DECLARED: Final[Mapping[str, type[Kind]]] = {"nodepools": NodePool, "queues": Queue}
"""Definitions whose specification is a declaration of this kind."""
_SPEC: Final = re.compile(r"^ {12}spec:\n.*?(?=^ {12}status:\n)", re.MULTILINE | re.DOTALL)
_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})
_ANY: Final = {"x-kubernetes-preserve-unknown-fields": True}


def texts() -> Mapping[str, str]:
    """Plural -> the YAML of its definition, as it should stand."""
    return {plural: _text(plural, (SOURCES / f"{plural}.yaml").read_text("utf-8")) for plural in NAMES}


def _text(plural: str, text: str) -> str:
    kind = DECLARED.get(plural)
    if kind is None:
        return text
    schema = schema_of(kind)
    spec = structural(schema["properties"]["spec"], schema["$defs"])
    spec |= {"description": "The declaration in git, without its defaults."}
    body = yaml.safe_dump({"spec": spec}, sort_keys=False, width=120, allow_unicode=True)
    block = "".join(f"{' ' * 12}{line}\n" for line in body.splitlines())
    return _SPEC.sub(lambda _: block, text, count=1)


def structural(node: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON Schema as a structural one that explains and refuses nothing: what git declares was checked there.

    Values that may be of several types may be anything, and no object loses a field that is not known.
    """
    told = {"description": " ".join(node["description"].split())} if "description" in node else {}
    if "$ref" in node:
        return structural(defs[node["$ref"].rpartition("/")[2]], defs) | told
    several = [it for key in ("anyOf", "oneOf", "allOf") for it in node.get(key, ()) if it.get("type") != "null"]
    if len(several) == 1:
        return structural(several[0], defs) | told
    return told | (_ANY if several else _typed(node, defs))


def _typed(node: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """A value of one type, or of any where none is named."""
    if known := {key: it for key, it in node.get("properties", {}).items() if "not" not in it}:
        return {"type": "object", "properties": {key: structural(it, defs) for key, it in known.items()}} | _ANY
    if values := node.get("additionalProperties"):
        return {"type": "object", "additionalProperties": structural(values, defs)}
    if "items" in node:
        return {"type": "array", "items": structural(node["items"], defs), "x-kubernetes-list-type": "atomic"}
    type_ = node.get("type")
    if isinstance(type_, str) and type_ in _SCALARS:
        return {"type": type_}
    return {"type": "object"} | _ANY if type_ == "object" else dict(_ANY)


def main(folder: Path) -> None:
    """Write every definition under its plural, here and in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for plural, text in texts().items():
        for place in (SOURCES, folder):
            (place / f"{plural}.yaml").write_text(text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
