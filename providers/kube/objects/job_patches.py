"""Start and stop of a Job or JobSet as JSON patches.

A start appends to every pod template: the gate `muster.dev/placement`, the labels that say whose pods they are, and the
tolerations of the flavor. What was appended is recorded in an annotation of the job, so that a stop, or the next start
with another flavor, takes away exactly that and nothing of the user's.

When a template may change (KEP-2926; jobset `webhooks/jobset_webhook.go`): of a Job only while it is suspended and has
no `status.startTime`, which stays after the first run until it is cleared (`unstart_patch`, as Kueue does); of a JobSet
while it is suspended or becoming so.
"""

from collections.abc import Iterator, Mapping

from fleet.actions import StartJob, StopJob
from fleet.snapshot import JobRef
from providers.kube.objects.additions import Additions, record, recorded, without
from providers.kube.objects.json_patch import at_version, became, pointer
from providers.kube.objects.names import ADDITIONS, MAIN_POD_SET, PLACEMENT_GATE, POD_SET, WORKLOAD
from providers.kube.objects.pod_sets import toleration_object
from providers.kube.objects.shapes import JsonObject


class StaleObject(Exception):
    """The object is not, or no longer, the one the action was decided on: look again and decide again."""


def start_patch(action: StartJob, raw: JsonObject) -> list[JsonObject]:
    """The patch that starts the job in `raw` (its JSON as read); empty when it has been started this way already.

    Raises `StaleObject` when it is another object, another version, or runs without our gate.
    """
    _same_job(action.job, raw)
    changes = _start_changes(action, raw)
    if not _suspended(raw):
        if changes:
            raise StaleObject(f"{action.job} runs although nobody here started it")
        return []
    _same_version(action, raw)
    return [at_version(raw), *changes, {"op": "add", "path": "/spec/suspend", "value": False}]


def unstart_patch(action: StartJob, raw: JsonObject) -> list[JsonObject]:
    """The patch of the `status` subresource that must come before `start_patch`; empty when none is needed.

    A Job that has run before keeps its `startTime` while suspended, and with it an immutable template. The patch
    changes the resourceVersion: start with what it answers, and with that version in the action. Raises `StaleObject`
    as `start_patch` does.
    """
    _same_job(action.job, raw)
    status = raw.get("status") or {}
    if raw["kind"] != "Job" or not _suspended(raw) or not status.get("startTime"):
        return []
    if not any(_template_changes(action, raw)):
        return []
    _same_version(action, raw)
    return [at_version(raw), {"op": "remove", "path": "/status/startTime"}]


def stop_patch(action: StopJob, raw: JsonObject) -> list[JsonObject]:
    """The patch that suspends the job in `raw`, and takes our additions away where the API lets us.

    Empty when nothing is left to do. Raises `StaleObject` when it is another object of the same name.
    """
    _same_job(action.job, raw)
    changes: list[JsonObject] = []
    if _template_mutable(raw):
        for name, where, template in _templates(raw):
            changes += _cleared(where, template, _additions(raw).get(name, []))
        changes += _recorded(raw, {})
    if not _suspended(raw):
        changes.append({"op": "add", "path": "/spec/suspend", "value": True})
    return [at_version(raw), *changes] if changes else []


def _same_job(job: JobRef, raw: JsonObject) -> None:
    if raw["metadata"]["uid"] != job.uid:
        raise StaleObject(f"{job} has been replaced by another object of its name")


def _same_version(action: StartJob, raw: JsonObject) -> None:
    if raw["metadata"]["resourceVersion"] != action.resource_version:
        raise StaleObject(f"{action.job} has changed since the decision")


def _suspended(raw: JsonObject) -> bool:
    return bool(raw["spec"].get("suspend"))


def _template_mutable(raw: JsonObject) -> bool:
    """Whether a stop may change the templates in the same patch."""
    return raw["kind"] == "JobSet" or (_suspended(raw) and not (raw.get("status") or {}).get("startTime"))


def _templates(raw: JsonObject) -> Iterator[tuple[str, str, JsonObject]]:
    """Pod set, JSON pointer and content of every pod template."""
    if raw["kind"] == "Job":
        yield MAIN_POD_SET, "/spec/template", raw["spec"]["template"]
        return
    for index, job in enumerate(raw["spec"].get("replicatedJobs") or ()):
        where = pointer("spec", "replicatedJobs", index, "template", "spec", "template")
        yield job["name"], where, job["template"]["spec"]["template"]


# -- start ------------------------------------------------------------------------------------------------------------


def _start_changes(action: StartJob, raw: JsonObject) -> list[JsonObject]:
    """Changes of the templates and the record of them."""
    changes = [change for template in _template_changes(action, raw) for change in template]
    appended = {name: _wanted(action, raw, name, template)[1] for name, _, template in _templates(raw)}
    return [*changes, *_recorded(raw, {name: added for name, added in appended.items() if added})]


def _template_changes(action: StartJob, raw: JsonObject) -> Iterator[list[JsonObject]]:
    for name, where, template in _templates(raw):
        spec = template["spec"]
        gates = spec.get("schedulingGates") or []
        gated = gates if any(gate["name"] == PLACEMENT_GATE for gate in gates) else [*gates, {"name": PLACEMENT_GATE}]
        tolerations, _ = _wanted(action, raw, name, template)
        yield [
            *_labelled(where, template, {WORKLOAD: action.workload, POD_SET: name}),
            *became(f"{where}/spec/schedulingGates", gates, gated),
            *became(f"{where}/spec/tolerations", spec.get("tolerations"), tolerations),
        ]


def _wanted(
    action: StartJob, raw: JsonObject, pod_set: str, template: JsonObject
) -> tuple[list[JsonObject], list[JsonObject]]:
    """All tolerations of a template after the start, and those of them that are ours."""
    users = without(template["spec"].get("tolerations") or [], _additions(raw).get(pod_set, []))
    added: list[JsonObject] = []
    for toleration in map(toleration_object, action.tolerations.get(pod_set, ())):
        if toleration not in users and toleration not in added:
            added.append(toleration)
    return [*users, *added], added


def _labelled(where: str, template: JsonObject, labels: Mapping[str, str]) -> list[JsonObject]:
    metadata = template.get("metadata")
    if metadata is None:
        return [{"op": "add", "path": f"{where}/metadata", "value": {"labels": dict(labels)}}]
    held = metadata.get("labels")
    if held is None:
        return [{"op": "add", "path": f"{where}/metadata/labels", "value": dict(labels)}]
    changed = (change for key, value in labels.items() for change in became(where + _label(key), held.get(key), value))
    return list(changed)


def _label(key: str) -> str:
    return pointer("metadata", "labels", key)


# -- stop -------------------------------------------------------------------------------------------------------------


def _cleared(where: str, template: JsonObject, added: list[JsonObject]) -> list[JsonObject]:
    spec = template["spec"]
    labels = (template.get("metadata") or {}).get("labels") or {}
    gates = spec.get("schedulingGates") or []
    tolerations = spec.get("tolerations") or []
    return [
        *({"op": "remove", "path": where + _label(key)} for key in (WORKLOAD, POD_SET) if key in labels),
        *became(f"{where}/spec/schedulingGates", gates, [gate for gate in gates if gate["name"] != PLACEMENT_GATE]),
        *became(f"{where}/spec/tolerations", tolerations, without(tolerations, added)),
    ]


# -- the record -------------------------------------------------------------------------------------------------------


def _additions(raw: JsonObject) -> Additions:
    return recorded(raw["metadata"].get("annotations"))


def _recorded(raw: JsonObject, additions: Additions) -> list[JsonObject]:
    annotations = raw["metadata"].get("annotations")
    text = record(additions)
    if annotations is None:
        return [{"op": "add", "path": "/metadata/annotations", "value": {ADDITIONS: text}}] if text else []
    return became(pointer("metadata", "annotations", ADDITIONS), annotations.get(ADDITIONS), text)
