"""What the annotations of a pod template ask of topology. Ours (`muster.dev/...`) win over Kueue's of the same name.

What cannot be read counts as not there: annotations are not validated by the API, and no pod may vanish for one.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from fleet.snapshot import Slice
from providers.kube.objects.names import either
from providers.kube.objects.shapes import first_of

REQUIRED: Final = either("podset-required-topology")
PREFERRED: Final = either("podset-preferred-topology")
UNCONSTRAINED: Final = either("podset-unconstrained-topology")
GROUP_NAME: Final = either("podset-group-name")
SLICE_TOPOLOGY: Final = either("podset-slice-required-topology")
SLICE_SIZE: Final = either("podset-slice-size")
SLICE_LAYERS: Final = either("podset-slice-required-topology-constraints")
MOST_LAYERS: Final = 3
"""Kueue's bound on nested slices."""

_layers = msgspec.json.Decoder(list[dict[str, Any]])


class Wishes(NamedTuple):
    """Holds the fields of a `PodSet` that ask for topology; at most one of the first three is set."""

    required: str = ""
    preferred: str = ""
    anywhere: bool = False
    slices: tuple[Slice, ...] = ()
    group: str = ""


def wishes_of(annotations: Mapping[str, str]) -> Wishes:
    """The wishes of a template. Of required, preferred and unconstrained the first that is given counts."""
    required = first_of(annotations, *REQUIRED)
    preferred = "" if required else first_of(annotations, *PREFERRED)
    anywhere = not required and not preferred and first_of(annotations, *UNCONSTRAINED) == "true"
    return Wishes(required, preferred, anywhere, _slices(annotations), first_of(annotations, *GROUP_NAME))


def whole(text: str, least: int = 1) -> int | None:
    """A decimal number of at least `least`; None for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least else None


def _slices(annotations: Mapping[str, str]) -> tuple[Slice, ...]:
    if text := first_of(annotations, *SLICE_LAYERS):
        return _nested(text)
    level, size = first_of(annotations, *SLICE_TOPOLOGY), whole(first_of(annotations, *SLICE_SIZE))
    return (Slice(level, size),) if level and size else ()


@lru_cache(maxsize=256)
def _nested(text: str) -> tuple[Slice, ...]:
    """`[{"topology": ..., "size": ...}]`, coarse to fine; none at all unless each size divides the one before."""
    try:
        found = _layers.decode(text)
    except msgspec.MsgspecError:
        return ()
    layers = tuple(Slice(str(one.get("topology") or ""), whole(str(one.get("size"))) or 0) for one in found)
    whole_layers = all(layer.level and layer.size for layer in layers)
    divide = whole_layers and all(outer.size % inner.size == 0 for outer, inner in pairwise(layers))
    return layers if divide and len(layers) <= MOST_LAYERS else ()
