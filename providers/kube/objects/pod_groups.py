"""A pod of a plain group -> what it says of the group.

A group is all pods of a namespace with the same label `muster.dev/pod-group-name` (or Kueue's); the annotation
`...-total-count` says how many they are. Or they name a PodGroup of Volcano, which says how many they are at least.
Pods that ask for the same are one role, which the label `muster.dev/pod-set` (or Volcano's `volcano.sh/task-spec`) may
name.
A pod on a queue that names no group is a gang of its own (Kueue's single pods), with the role `main`.
"""

from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Raw

from fleet.snapshot import GroupMember, PodSet, SubGroupPolicy, Terms
from fleet.snapshot.constraints import PodConstraints, UnsupportedConstraint
from providers.kube.objects.instants import instant_of
from providers.kube.objects.jobs.reading import checkpoint_of, interval_of, priority_of, queue_of, said_of
from providers.kube.objects.known_keys import KeyedObject, KeyHolder
from providers.kube.objects.label_selectors import WireSelector, pod_selector
from providers.kube.objects.names import GROUP_NAME, GROUP_TOTAL, MAIN_POD_SET, POD_SET, VOLCANO_GROUP, VOLCANO_TASK
from providers.kube.objects.pod_sets import pod_set_object
from providers.kube.objects.pod_templates import PodOrigin, PodTemplate, pod_set_of
from providers.kube.objects.shapes import Wire, WireMeta, first_of
from providers.kube.objects.topology import whole

_NOTHING: Final[dict[str, str]] = {}
_POD: Final = frozenset({KeyHolder.POD})


class _GroupedPod(Wire, frozen=True):
    metadata: WireMeta


class _SubGroups(Wire, frozen=True):
    name: str = ""
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    label_selector: WireSelector | None = None
    match_label_keys: list[str] | None = None
    network_topology: dict[str, Any] | None = None


class _GroupSpec(Wire, frozen=True):
    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    sub_group_policy: list[_SubGroups] | None = None


class _PodGroup(Wire, frozen=True):
    metadata: WireMeta
    spec: _GroupSpec = _GroupSpec()


_pods = msgspec.json.Decoder(_GroupedPod)
_groups = msgspec.json.Decoder(_PodGroup)
_templates = msgspec.json.Decoder(PodTemplate)


def member_of(raw: bytes | Raw) -> GroupMember:
    """What the pod says; a total that cannot be read is none."""
    meta = _pods.decode(raw).metadata
    labels, annotations = meta.labels or _NOTHING, meta.annotations or _NOTHING
    template = _templates.decode(raw)
    shape = pod_set_of(first_of(labels, POD_SET, VOLCANO_TASK), 1, template, {}, PodOrigin(meta.namespace, made=True))
    group = first_of(labels, *GROUP_NAME) or first_of(annotations, *VOLCANO_GROUP)
    if not shape.name:
        shape = _named(shape) if group else replace(shape, name=MAIN_POD_SET)
    return GroupMember(
        group=group,
        total=whole(first_of(annotations, *GROUP_TOTAL)) or 0 if group else 1,
        shape=shape,
        queue=queue_of(labels),
        created_at_s=instant_of(meta.creation_timestamp),
        priority_class=priority_of(labels),
        last_checkpoint_s=checkpoint_of(annotations),
        checkpoint_interval_s=interval_of(annotations),
        pod_priority_class=template.spec.priority_class_name or "",
        **said_of(labels, annotations, (KeyedObject(_POD, labels, annotations),))._asdict(),
    )


def _named(shape: PodSet) -> PodSet:
    """The role named by what it asks for, the same for equal pods.

    Of the labels only those count that its own constraints look at: many programs number their pods by a label.
    """
    looked_at = _looked_at(shape.constraints)
    counted = tuple((key, text) for key, text in shape.labels if key in looked_at)
    text = msgspec.json.encode(pod_set_object(replace(shape, labels=counted)), order="sorted")
    return replace(shape, name=f"role-{blake2b(text, digest_size=4).hexdigest()}")


def _looked_at(constraints: PodConstraints) -> frozenset[str]:
    """The labels that selectors of the pod's own constraints name."""
    terms = (*constraints.affinity, *constraints.anti_affinity, *(it.term for it in constraints.preferred_pods))
    selectors = (*(it.selector or () for it in terms), *(it.selector or () for it in constraints.spread))
    return frozenset(requirement.key for selector in selectors for requirement in selector)


def decode_pod_group(raw: bytes | Raw) -> Terms:
    """`scheduling.volcano.sh/v1beta1` PodGroup. One that says no `minMember` needs one pod, as Volcano has it."""
    found = _groups.decode(raw)
    meta, spec = found.metadata, found.spec
    together = 1 if spec.min_member is None else spec.min_member
    policies = tuple(map(_policy, spec.sub_group_policy or ()))
    return Terms(meta.namespace, meta.name, together, spec.min_task_member or {}, policies)


def _policy(found: _SubGroups) -> SubGroupPolicy:
    """How pods form sub-groups; what is asked of topology is refused, as only Volcano's scheduler knows it."""
    refused: list[UnsupportedConstraint] = []
    if found.network_topology and found.network_topology.get("mode", "hard") == "hard":
        words = "use the annotation muster.dev/podset-required-topology of the pods instead"
        refused.append(UnsupportedConstraint("networkTopology", words))
    try:
        selector = pod_selector(found.label_selector) if found.label_selector else ()
    except ValueError as error:  # a malformed one selects all pods, which are refused
        selector = ()
        refused.append(UnsupportedConstraint("labelSelector", str(error).partition("\n")[0]))
    return SubGroupPolicy(
        found.name,
        tuple(found.match_label_keys or ()),
        max(1, found.sub_group_size or 1),
        max(0, found.min_sub_groups or 0),
        selector,
        tuple(refused),
    )
