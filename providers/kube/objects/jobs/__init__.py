"""Work of every kind: a small class a kind, a table of them, and one way to read, start and stop any."""

from providers.kube.objects.jobs.kind import JobKind
from providers.kube.objects.jobs.patches import StaleObject, prepare_patch, start_patch, stop_patch
from providers.kube.objects.jobs.registry import BY_GROUP_KIND, DECODERS, HELD_BY_POD, KINDS, kind_of

__all__ = [
    "BY_GROUP_KIND",
    "DECODERS",
    "HELD_BY_POD",
    "KINDS",
    "JobKind",
    "StaleObject",
    "kind_of",
    "prepare_patch",
    "start_patch",
    "stop_patch",
]
