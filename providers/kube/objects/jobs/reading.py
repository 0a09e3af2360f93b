"""An object of any kind of work -> `Job`. What everybody may write on a job is read alike for all of them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw
from pydantic import TypeAdapter, ValidationError

from fleet.snapshot import Hold, Job, JobRef, PodSet
from fleet.snapshot.constraints import UnsupportedConstraint
from fleet.snapshot.gangs import STATEFUL_SET
from model.kinds.base import NEVER, Duration
from model.labels import DO_NOT_DISRUPT, KUEUE_PRIORITY_CLASS, KUEUE_QUEUE, PRIORITY_CLASS, QUEUE
from model.upstream.do_not_disrupt import longest
from providers.kube.objects.additions import Additions, recorded
from providers.kube.objects.instants import instant_of, parse_instant
from providers.kube.objects.jobs.kind import GroupKind, JobKind
from providers.kube.objects.jobs.templates import Role
from providers.kube.objects.known_keys import KeyedObject, KeyHolder, misread_keys
from providers.kube.objects.names import (
    CHECKPOINT_INTERVAL,
    EXPECTED_RUN,
    KUEUE_MAX_RUN,
    LAST_CHECKPOINT,
    MAX_RUN,
    ON_NODE_FAILURE,
    OWN_DO_NOT_DISRUPT,
    PRIORITY_BOOST,
    SLA_WAITING,
    VOLCANO_LAST_CHECKPOINT,
)
from providers.kube.objects.pod_sets import pod_labels
from providers.kube.objects.pod_templates import PodOrigin, PodTemplate, pod_set_of
from providers.kube.objects.refused_fields import unknown_fields
from providers.kube.objects.shapes import JsonObject, Owner, Wire, WireMeta, first_of
from providers.kube.objects.topology import whole


class _Object(Wire, frozen=True):
    """Of the metadata, most of which is other people's bookkeeping, only what everybody may say."""

    metadata: WireMeta
    spec: dict[str, Any]
    status: dict[str, Any] | None = None


_objects = msgspec.json.Decoder(_Object)
_templates = msgspec.json.Decoder(PodTemplate)
_BOOST: Final = re.compile(r"[+-]?[0-9]{1,9}")
_ON_NODE_FAILURE: Final = frozenset({"Replace", "Evict"})
_duration: Final = TypeAdapter[float](Duration)
_LONGEST: Final = 80
"""Signs of a value that are told."""


def read_job(kind: JobKind, parents: frozenset[GroupKind], data: bytes | Raw) -> Job:
    """A job of that kind; one that a job of one of the kinds `parents` made is not managed by itself."""
    found = _objects.decode(data)
    meta, annotations = found.metadata, found.metadata.annotations or {}
    named: JsonObject = {"name": meta.name, "namespace": meta.namespace, "annotations": annotations}
    named["generation"] = meta.generation
    raw: JsonObject = {"metadata": named, "spec": found.spec, "status": found.status}
    owner, outcome, counts = managing(meta.owner_references, parents), kind.outcome(raw), kind.counts(raw)
    origin = PodOrigin(meta.namespace, late=kind.late, refused=tuple(kind.refused(raw)))
    origins = ((role, origin._replace(labels=kind.stamped(raw, role))) for role in kind.roles(raw))
    read = [_pod_set(role, recorded(annotations), where) for role, where in origins]
    ours = owner is None and kind.manageable(raw)
    queue = queue_of(meta.labels) if ours else ""
    return Job(
        ref=JobRef(kind.path.api_version(), kind.kind, meta.namespace, meta.name, meta.uid),
        resource_version=meta.resource_version,
        queue=queue,
        priority_class=priority_of(meta.labels),
        suspended=kind.suspended(raw),
        pod_sets=tuple(pod_set for pod_set, _ in read),
        created_at_s=instant_of(meta.creation_timestamp),
        result=outcome.result if outcome else None,
        finished_at_s=outcome.at_s if outcome else 0.0,
        ready_pods=counts.ready,
        active_pods=counts.active,
        deleting=meta.deletion_timestamp is not None,
        last_checkpoint_s=checkpoint_of(annotations),
        checkpoint_interval_s=interval_of(annotations),
        do_not_disrupt=longest(map(protection_of, (annotations, *(template.annotations for _, template in read)))),
        hold=kind.hold,
        owner_uid=owner.uid if owner else "",
        shaped_below=kind.shaped_below,
        pod_priority_class=next((name for _, template in read if (name := template.spec.priority_class_name)), ""),
        remaining=kind.remaining(raw),
        restarts=kind.restarts(raw),
        choice=kind.choice(raw),
        numbering=kind.numbering(raw),
        may_be_queued=ours and not queue and kind.hold is Hold.SWITCH,
        labels=pod_labels(tuple((meta.labels or {}).items())),
        **said_of(meta.labels, annotations, tuple(_keyed(kind, meta, read)))._asdict(),
    )


_JOB: Final = frozenset({KeyHolder.JOB})
_TEMPLATE: Final = frozenset({KeyHolder.TEMPLATE})
_OF_TEMPLATES: Final[Mapping[str, frozenset[KeyHolder]]] = {STATEFUL_SET: _TEMPLATE | {KeyHolder.POD}}
"""Pods of a StatefulSet may be of a group, or gangs of their own: what they say is read as of others."""


def _keyed(kind: JobKind, meta: WireMeta, read: Iterable[tuple[PodSet, PodTemplate]]) -> Iterator[KeyedObject]:
    of_batch = {KeyHolder.BATCH_JOB} if kind.group_kind == ("batch", "Job") else set[KeyHolder]()
    yield KeyedObject(_JOB | of_batch, meta.labels, meta.annotations)
    for pods, template in read:
        holders = _OF_TEMPLATES.get(kind.kind, _TEMPLATE)
        yield KeyedObject(holders, template.labels, template.annotations, f"pods of {pods.name}: ")


def managing(owners: Iterable[Owner] | None, parents: frozenset[GroupKind]) -> Owner | None:
    """The controlling owner, if it is of one of the kinds `parents`."""
    return next((it for it in owners or () if it.controller and (it.group, it.kind) in parents), None)


def queue_of(labels: Mapping[str, str] | None) -> str:
    """The queue something asks for."""
    return first_of(labels, QUEUE, KUEUE_QUEUE)


def priority_of(labels: Mapping[str, str] | None) -> str:
    """The priority class something asks for."""
    return first_of(labels, PRIORITY_CLASS, KUEUE_PRIORITY_CLASS)


def checkpoint_of(annotations: Mapping[str, str]) -> float | None:
    """When it last saved its work. What the job itself writes is advice: an unreadable time counts as none."""
    text = first_of(annotations, LAST_CHECKPOINT, VOLCANO_LAST_CHECKPOINT)
    try:
        return parse_instant(text) if text else None
    except ValueError:
        return None


def interval_of(annotations: Mapping[str, str]) -> float | None:
    """How often it saves its work, in seconds."""
    return _interval_s(annotations.get(CHECKPOINT_INTERVAL, ""))


class Said(NamedTuple):
    """What a job says of its run, in the words of `Job`; what cannot be read counts as not said, and is told."""

    expected_run_s: float | None = None
    max_run_s: float | None = None
    sla_waiting_s: float | None = None
    priority_boost: int = 0
    on_node_failure: str = ""
    unread: tuple[UnsupportedConstraint, ...] = ()


def said_of(
    labels: Mapping[str, str] | None,
    annotations: Mapping[str, str],
    keyed: Sequence[KeyedObject],
) -> Said:
    """How long it runs, may run and may wait, how much more it counts than its class says, what a lost node means.

    `keyed` are all of its labels and annotations, those of templates among them.
    """
    most_s, kueues = _interval_s(annotations.get(MAX_RUN, "")), whole(first_of(labels, KUEUE_MAX_RUN))
    return Said(
        _interval_s(annotations.get(EXPECTED_RUN, "")),
        float(kueues) if most_s is None and kueues else most_s,
        _interval_s(first_of(annotations, *SLA_WAITING)),
        _boost(first_of(annotations, *PRIORITY_BOOST)),
        said if (said := annotations.get(ON_NODE_FAILURE, "")) in _ON_NODE_FAILURE else "",
        (*_unread(labels or {}, annotations), *misread_keys(keyed)),
    )


def _unread(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[UnsupportedConstraint]:
    for where, metadata, names, read, wanted in (
        ("annotations", annotations, (MAX_RUN, EXPECTED_RUN, *SLA_WAITING), _seconds, "a duration such as 90m or 6h"),
        ("annotations", annotations, PRIORITY_BOOST, _BOOST.fullmatch, "a whole number"),
        ("annotations", annotations, (ON_NODE_FAILURE,), _ON_NODE_FAILURE.__contains__, "Replace or Evict"),
        ("labels", labels, (KUEUE_MAX_RUN,), whole, "a whole number of seconds"),
    ):
        for name, text in ((name, metadata.get(name, "")) for name in names):
            if text and not read(text):
                yield UnsupportedConstraint(f"metadata.{where}[{name}]", f"{text[:_LONGEST]!r} is not {wanted}")


def _boost(text: str) -> int:
    """A whole number with or without a sign; 0 for anything else."""
    return int(text) if _BOOST.fullmatch(text) else 0


def protection_of(annotations: Mapping[str, str]) -> str:
    """For how long voluntary disruption is forbidden: `true`, a duration, or empty where it is not."""
    return longest(annotations.get(name, "") for name in (OWN_DO_NOT_DISRUPT, DO_NOT_DISRUPT))


def _pod_set(role: Role, additions: Additions, origin: PodOrigin) -> tuple[PodSet, PodTemplate]:
    template = _templates.decode(msgspec.json.encode(role.template))
    unknown = tuple(unknown_fields(role.template.get("spec") or {}))
    origin = origin._replace(refused=(*origin.refused, *unknown)) if unknown else origin
    pod_set = pod_set_of(role.name, role.pods, template, additions, origin)
    if role.min_count is not None or role.core is not None:
        pod_set = replace(pod_set, min_count=role.min_count, core=role.core)
    return pod_set, template


@lru_cache(maxsize=1024)
def _seconds(text: str) -> float | None:
    """Returns a time above zero, `NEVER` for none; None for what is neither."""
    try:
        seconds = _duration.validate_python(text) if text else NEVER
    except ValidationError:
        return None
    return seconds if seconds > 0 else None


def _interval_s(text: str) -> float | None:
    seconds = _seconds(text)
    return seconds if seconds != NEVER else None
