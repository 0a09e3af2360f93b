"""A pod of a plain group -> what it says of the group.

A group is all pods of a namespace with the same label `muster.dev/pod-group-name` (or Kueue's); the annotation
`...-total-count` says how many they are. Pods that ask for the same are one role, which the label `muster.dev/pod-set`
may name.
"""

from dataclasses import replace
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Raw

from fleet.snapshot import Member, PodSet
from providers.kube.objects.instants import instant_of
from providers.kube.objects.jobs.reading import checkpoint_of, interval_of, priority_of, queue_of
from providers.kube.objects.names import GROUP_NAME, GROUP_TOTAL, POD_SET
from providers.kube.objects.pod_sets import pod_set_object
from providers.kube.objects.pod_templates import Template, pod_set_of
from providers.kube.objects.shapes import Meta, Wire, first_of
from providers.kube.objects.topology import whole

_NOTHING: Final[dict[str, str]] = {}


class _Pod(Wire, frozen=True):
    metadata: Meta


_pods = msgspec.json.Decoder(_Pod)
_templates = msgspec.json.Decoder(Template)


def member_of(raw: bytes | Raw) -> Member:
    """What the pod says. A total that cannot be read is 1: the pod stands for itself."""
    meta = _pods.decode(raw).metadata
    labels, annotations = meta.labels or _NOTHING, meta.annotations or _NOTHING
    shape = pod_set_of(labels.get(POD_SET, ""), 1, _templates.decode(raw), {})
    return Member(
        group=first_of(labels, *GROUP_NAME),
        total=whole(first_of(annotations, *GROUP_TOTAL)) or 1,
        shape=shape if shape.name else _named(shape),
        queue=queue_of(labels),
        created_at_s=instant_of(meta.creation_timestamp),
        priority_class=priority_of(labels),
        last_checkpoint_s=checkpoint_of(annotations),
        checkpoint_interval_s=interval_of(annotations),
    )


def _named(shape: PodSet) -> PodSet:
    """The role named by what it asks for, the same for equal pods."""
    text = msgspec.json.encode(pod_set_object(shape), order="sorted")
    return replace(shape, name=f"role-{blake2b(text, digest_size=4).hexdigest()}")
