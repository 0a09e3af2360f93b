"""What the user asked for in fields that we lower, kept in an annotation: JSON pointer -> the value asked.

Pods are held back by `replicas: 0` where a kind has no other switch, and fewer are started than asked for where a gang
is admitted with fewer. Either way the object still says what its user wants.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from providers.kube.objects.json_patch import pointer
from providers.kube.objects.names import ASKED
from providers.kube.objects.shapes import JsonObject, dig

PARALLELISM, COMPLETIONS, REPLICAS = (pointer("spec", name) for name in ("parallelism", "completions", "replicas"))
_LOWERED: Final = frozenset({PARALLELISM, COMPLETIONS, REPLICAS})
_decoder = msgspec.json.Decoder(dict[str, int])


def asked(raw: JsonObject) -> Mapping[str, int]:
    """The record; one that cannot be read counts as none, and so does a field that is never lowered.

    Whoever may annotate a job must not have the agent write just any field of it.
    """
    text = (dig(raw, "metadata", "annotations") or {}).get(ASKED, "")
    try:
        found = _decoder.decode(text) if text else {}
    except msgspec.MsgspecError:
        return {}
    return {where: value for where, value in found.items() if where in _LOWERED and value >= 0}


def written(record: Mapping[str, Any]) -> str:
    """The annotation's text; empty when there is nothing to record."""
    return msgspec.json.encode(record, order="sorted").decode() if record else ""


def restored(raw: JsonObject) -> list[JsonObject]:
    """Returns the operations that set the lowered fields back to what the user asked for."""
    return [{"op": "add", "path": where, "value": value} for where, value in sorted(asked(raw).items())]
