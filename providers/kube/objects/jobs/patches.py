"""Start and stop of a job of any kind as JSON patches.

When a template may change (KEP-2926; jobset `webhooks/jobset_webhook.go`): of a Job only while it is suspended and has
no `status.startTime`, which stays after the first run until it is cleared (`prepare_patch`, as Kueue does); of a JobSet
while it is suspended or becoming so; the kinds of operators are free.
"""

from fleet.actions import StartJob, StopJob
from fleet.snapshot import JobRef
from providers.kube.objects.additions import record
from providers.kube.objects.jobs.asked import written
from providers.kube.objects.jobs.kind import JobKind, Preparation
from providers.kube.objects.jobs.registry import kind_of
from providers.kube.objects.jobs.templates import annotated
from providers.kube.objects.json_patch import at_version
from providers.kube.objects.names import ADDITIONS, ASKED
from providers.kube.objects.shapes import JsonObject


class StaleObject(Exception):
    """The object is not, or no longer, the one the action was decided on: look again and decide again."""


def prepare_patch(action: StartJob, raw: JsonObject) -> Preparation | None:
    """The write that must come before `start_patch`; None when none is needed.

    It changes the resourceVersion: start with what it answers, and with that version in the action. Raises
    `StaleObject` as `start_patch` does.
    """
    kind = _kind(action.job, raw)
    preparation = kind.prepare(action, raw) if kind.suspended(raw) else None
    if preparation is None:
        return None
    _same_version(action, raw)
    return Preparation([at_version(raw), *preparation.operations], preparation.subresource)


def start_patch(action: StartJob, raw: JsonObject) -> list[JsonObject]:
    """The patch that starts the job in `raw` (its JSON as read); empty when it has been started this way already.

    Raises `StaleObject` when it is another object, another version, or runs without our gate.
    """
    kind = _kind(action.job, raw)
    marks = kind.marked(action, raw)
    if not kind.suspended(raw):
        if marks.operations or annotated(raw, {ADDITIONS: record(marks.additions)}):
            raise StaleObject(f"{action.job} runs although nobody here started it")
        return []
    _same_version(action, raw)
    change = kind.resume(raw, action.pod_sets)
    notes = {ADDITIONS: record(marks.additions), ASKED: written(change.asked)}
    return [at_version(raw), *marks.operations, *annotated(raw, notes), *change.operations]


def stop_patch(action: StopJob, raw: JsonObject) -> list[JsonObject]:
    """The patch that suspends the job in `raw`, and takes our additions away where the API lets us.

    Empty when nothing is left to do. Raises `StaleObject` when it is another object of the same name.
    """
    kind = _kind(action.job, raw)
    change = kind.pause(raw)
    notes, changes = {ASKED: written(change.asked)}, list[JsonObject]()
    if kind.malleable(raw):
        notes[ADDITIONS] = ""
        changes += kind.cleared(raw)
    changes += [*annotated(raw, notes), *change.operations]
    return [at_version(raw), *changes] if changes else []


def _kind(job: JobRef, raw: JsonObject) -> JobKind:
    if raw["metadata"]["uid"] != job.uid:
        raise StaleObject(f"{job} has been replaced by another object of its name")
    return kind_of(job)


def _same_version(action: StartJob, raw: JsonObject) -> None:
    if raw["metadata"]["resourceVersion"] != action.resource_version:
        raise StaleObject(f"{action.job} has changed since the decision")
