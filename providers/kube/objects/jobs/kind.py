"""One kind of work, behind one interface: where it lives, what it asks for, and how it is held, started and stopped.

A kind reads plain JSON, as the API wrote it: what a user can write there is whatever the kind's own controller takes.
Of the metadata it may count on name, namespace, generation and annotations.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fleet.actions import StartJob
from fleet.snapshot import Hold, JobResult, Numbering, PodSet
from fleet.snapshot.constraints import UnsupportedConstraint
from fleet.snapshot.sub_groups import SubGroup
from providers.kube.objects.instants import instant_of
from providers.kube.objects.jobs.asked import restored
from providers.kube.objects.jobs.templates import Marked, Role, cleared, marked
from providers.kube.objects.json_patch import put
from providers.kube.objects.shapes import JsonObject, dig
from providers.kube.objects.topology import REQUIRED as REQUIRED_TOPOLOGY
from providers.kube.resources import ResourcePath

GroupKind = tuple[str, str]
"""API group and kind."""

NOT_RECORDED: Final[Mapping[str, Any]] = {}
NO_LABELS: Final[Mapping[str, str]] = {}


class JobOutcome(NamedTuple):
    """How and when (epoch seconds, 0 = not said) a job ended."""

    result: JobResult
    at_s: float = 0.0


class Counts(NamedTuple):
    """Pods by the job's own status; 0 where it does not say, then the pods themselves are counted."""

    ready: int = 0
    active: int = 0


class JobChange(NamedTuple):
    """Operations on the specification, and what was asked in the fields they lower (`asked`)."""

    operations: list[JsonObject]
    asked: Mapping[str, Any] = NOT_RECORDED


class Preparation(NamedTuple):
    """A write that has to come before the start: RFC 6902 operations, and the subresource they are for."""

    operations: list[JsonObject]
    subresource: str = ""


class JobKind(ABC):
    """A kind of work: how its objects are read, held, started and stopped (Kueue's `GenericJob`)."""

    path: ResourcePath
    kind: str
    optional: bool = True
    """Whether a cluster may lack it."""
    hold: Hold = Hold.SWITCH
    shaped_below: bool = False
    """Whether its pod sets are those of the job it makes."""
    switch: tuple[str, ...] = ("spec", "suspend")
    late: frozenset[str] = frozenset()
    """Labels, or their domains, that its controller sets on pods, each with a value of its own or one not known yet."""
    owns: frozenset[GroupKind] = frozenset()
    """Kinds of the jobs it makes: these belong to its gang and become no gangs of their own."""

    @property
    def group_kind(self) -> GroupKind:
        """Returns what tells it from other kinds: other groups may have a kind of the same name."""
        return self.path.group, self.kind

    @abstractmethod
    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Returns the pod sets of a job, in the order in which they matter."""

    @abstractmethod
    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """Returns how a job ended; None while it has not."""

    def stamped(self, raw: JsonObject, role: Role) -> Mapping[str, str]:
        """Returns the labels that its controller sets on every pod of a role, beside those of the template."""
        return NO_LABELS

    def refused(self, raw: JsonObject) -> Iterable[UnsupportedConstraint]:
        """Returns what a job asks about the places of its pods beside their templates, and what is not honoured."""
        return ()

    def counts(self, raw: JsonObject) -> Counts:
        """Returns how many pods of a job are ready and active, as far as its status says."""
        return Counts()

    def remaining(self, raw: JsonObject) -> Mapping[str, int]:
        """Pod set -> pods it still needs, where these are fewer than it asks for at once; nothing where not known."""
        return {}

    def choice(self, raw: JsonObject) -> SubGroup | None:
        """Returns which of its pods may be its core, where pods of unlike sets may stand in for each other."""
        return None

    def numbering(self, raw: JsonObject) -> Numbering | None:
        """Returns how its pods are numbered; None where a pod's name says nothing."""
        return None

    def restarts(self, raw: JsonObject) -> Mapping[str, int]:
        """Pod set -> how many of its pods may be lost now and are made anew while the others go on.

        Only what its own controller is sure to do: who says nothing here is stopped whole, which nothing counts
        against it.
        """
        return {}

    def manageable(self, raw: JsonObject) -> bool:
        """Returns whether a job can be held and started at all; one that cannot is left alone."""
        return True

    def suspended(self, raw: JsonObject) -> bool:
        """Returns whether a job is held, so that it makes no pods now."""
        return bool(dig(raw, *self.switch))

    def resume(self, raw: JsonObject, pod_sets: Sequence[PodSet]) -> JobChange:
        """Returns what lets a job make the pods that were admitted: all it asks for, unless `pod_sets` has fewer."""
        return JobChange(put(raw, self.switch, value=False))

    def pause(self, raw: JsonObject) -> JobChange:
        """Returns what lets a job end its pods and make no more, and ask again for what its user asked for."""
        return JobChange([*restored(raw), *([] if self.suspended(raw) else put(raw, self.switch, value=True))])

    def marked(self, action: StartJob, raw: JsonObject) -> Marked:
        """Returns what a start changes so that pods come gated, labelled and tolerating; nothing when they do."""
        return marked(self.roles(raw), action, raw)

    def cleared(self, raw: JsonObject) -> list[JsonObject]:
        """Returns the operations that take away what a start has added to the templates."""
        return cleared(self.roles(raw), raw)

    def prepare(self, action: StartJob, raw: JsonObject) -> Preparation | None:
        """Returns what must be written before the start; None when nothing must."""
        return None

    def malleable(self, raw: JsonObject) -> bool:
        """Returns whether the write that stops a job may change its templates, too."""
        return True


def ended(raw: JsonObject, succeeded: str) -> JobOutcome | None:
    """Returns how a job ended by its conditions: either the given one or Failed is True then."""
    for kind, result in ((succeeded, JobResult.SUCCEEDED), ("Failed", JobResult.FAILED)):
        for condition in dig(raw, "status", "conditions") or ():
            if condition["type"] == kind and condition.get("status") == "True":
                return JobOutcome(result, instant_of(condition.get("lastTransitionTime")))
    return None


def refused_annotations(raw: JsonObject, where: str, *names: str) -> Iterable[UnsupportedConstraint]:
    """Returns a refusal for each of these annotations that an object has; `where` is the path of its metadata."""
    notes = dig(raw, "metadata", "annotations") or {}
    for name in names:
        if notes.get(name):
            words = f"use the annotation {REQUIRED_TOPOLOGY[0]} of the pod template instead"
            yield UnsupportedConstraint(f"{where}.annotations[{name}]", words)


def number(value: int | None, default: int) -> int:
    """Returns a count that the object may leave out."""
    return default if value is None else int(value)
