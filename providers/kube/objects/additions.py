"""The record, on a job, of the tolerations a start appended to its templates: read, written, taken away again.

A template cannot always be changed back when a job stops, so what we appended may still stand in it. Whoever reads a
template sees what the user wrote, by the record.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from providers.kube.objects.names import ADDITIONS
from providers.kube.objects.shapes import JsonObject

T = TypeVar("T")

Additions = Mapping[str, list[JsonObject]]
"""Pod set -> tolerations (`core/v1`) that a start appended to its template."""

_decoder = msgspec.json.Decoder(dict[str, list[dict[str, Any]]])


def recorded(annotations: Mapping[str, str] | None) -> Additions:
    """What an earlier start appended; a record that cannot be read counts as none."""
    text = (annotations or {}).get(ADDITIONS, "")
    try:
        return _decoder.decode(text) if text else {}
    except msgspec.MsgspecError:
        return {}


def record(additions: Additions) -> str:
    """The annotation's text; empty when there is nothing to record."""
    return msgspec.json.encode(additions, order="sorted").decode() if additions else ""


def without(held: Sequence[T], added: Sequence[T]) -> list[T]:
    """`held` less one of each of `added`, taken from the end, where they were appended."""
    kept = list(held)
    for one in reversed(added):
        if one in kept:
            del kept[len(kept) - 1 - kept[::-1].index(one)]
    return kept
