"""What a start does to pod templates, and how it is taken away again.

A start appends to every template: the gate `muster.dev/placement`, the labels that say whose pods they are, and the
tolerations of the flavor. What was appended is recorded in an annotation of the job, so that a stop, or the next start
with another flavor, takes away exactly that and nothing of the user's.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from fleet.actions import StartJob
from providers.kube.objects.additions import Additions, recorded, without
from providers.kube.objects.json_patch import became, pointer
from providers.kube.objects.names import PLACEMENT_GATE, POD_SET, WORKLOAD
from providers.kube.objects.pod_templates import toleration_object
from providers.kube.objects.shapes import JsonObject


class Role(NamedTuple):
    """The pods of one template: so many of them run at once."""

    name: str
    pods: int
    where: str
    """JSON pointer of the template."""
    template: JsonObject
    min_count: int | None = None
    core: int | None = None


class Marked(NamedTuple):
    """Operations on templates, and the record of what they append."""

    operations: list[JsonObject]
    additions: Additions = MappingProxyType({})


def gated(template: JsonObject) -> bool:
    """Whether pods of the template wait behind our gate."""
    return any(gate["name"] == PLACEMENT_GATE for gate in template["spec"].get("schedulingGates") or ())


def marked(roles: Sequence[Role], action: StartJob, raw: JsonObject) -> Marked:
    """Adds our gate, labels and tolerations to every template."""
    held = additions(raw)
    changes: list[JsonObject] = []
    appended: dict[str, list[JsonObject]] = {}
    for role in roles:
        users = without(role.template["spec"].get("tolerations") or [], held.get(role.name, []))
        tolerations, added = appending(users, action, role.name)
        changes += _marks(role, action, tolerations)
        if added:
            appended[role.name] = added
    return Marked(changes, appended)


def cleared(roles: Iterable[Role], raw: JsonObject) -> list[JsonObject]:
    """Takes our additions out of every template."""
    held = additions(raw)
    return [change for role in roles for change in _without_marks(role, held.get(role.name, []))]


def additions(raw: JsonObject) -> Additions:
    """Reads what an earlier start has appended."""
    return recorded(raw["metadata"].get("annotations"))


def appending(users: Sequence[JsonObject], action: StartJob, pod_set: str) -> tuple[list[JsonObject], list[JsonObject]]:
    """The user's tolerations with those of the flavor, and those of them that the user has not."""
    added: list[JsonObject] = []
    for toleration in map(toleration_object, action.tolerations.get(pod_set, ())):
        if toleration not in users and toleration not in added:
            added.append(toleration)
    return [*users, *added], added


def annotated(raw: JsonObject, texts: Mapping[str, str]) -> list[JsonObject]:
    """Set annotations of the job; an empty text means that it has none."""
    annotations = raw["metadata"].get("annotations")
    if annotations is None:
        wanted = {key: text for key, text in texts.items() if text}
        return [{"op": "add", "path": "/metadata/annotations", "value": wanted}] if wanted else []
    changes = (
        became(pointer("metadata", "annotations", key), annotations.get(key), text) for key, text in texts.items()
    )
    return [change for each in changes for change in each]


def _marks(role: Role, action: StartJob, tolerations: list[JsonObject]) -> list[JsonObject]:
    spec = role.template["spec"]
    gates = spec.get("schedulingGates") or []
    return [
        *_labelled(role, {WORKLOAD: action.workload, POD_SET: role.name}),
        *became(
            f"{role.where}/spec/schedulingGates",
            gates,
            gates if gated(role.template) else [*gates, {"name": PLACEMENT_GATE}],
        ),
        *became(f"{role.where}/spec/tolerations", spec.get("tolerations"), tolerations),
    ]


def _labelled(role: Role, labels: Mapping[str, str]) -> list[JsonObject]:
    metadata = role.template.get("metadata")
    if metadata is None:
        return [{"op": "add", "path": f"{role.where}/metadata", "value": {"labels": dict(labels)}}]
    held = metadata.get("labels")
    if held is None:
        return [{"op": "add", "path": f"{role.where}/metadata/labels", "value": dict(labels)}]
    changed = (
        change for key, value in labels.items() for change in became(role.where + _label(key), held.get(key), value)
    )
    return list(changed)


def _label(key: str) -> str:
    return pointer("metadata", "labels", key)


def _without_marks(role: Role, added: list[JsonObject]) -> list[JsonObject]:
    spec = role.template["spec"]
    gates = spec.get("schedulingGates") or []
    tolerations = spec.get("tolerations") or []
    return [
        *_unlabelled(role),
        *became(f"{role.where}/spec/schedulingGates", gates, [g for g in gates if g["name"] != PLACEMENT_GATE]),
        *became(f"{role.where}/spec/tolerations", tolerations, without(tolerations, added)),
    ]


def _unlabelled(role: Role) -> list[JsonObject]:
    """Without our labels, and without the map, or the metadata, that nothing is left in."""
    metadata = role.template.get("metadata") or {}
    labels = metadata.get("labels") or {}
    ours = [key for key in (WORKLOAD, POD_SET) if key in labels]
    if not ours or len(ours) < len(labels):
        return [{"op": "remove", "path": role.where + _label(key)} for key in ours]
    return [{"op": "remove", "path": f"{role.where}/metadata" + ("/labels" if len(metadata) > 1 else "")}]
