"""One kind of work, behind one interface: where it lives, what it asks for, and how it is held, started and stopped.

A kind reads plain JSON, as the API wrote it: what a user can write there is whatever the kind's own controller takes.
Of the metadata it may count on the annotations.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fleet.actions import StartJob
from fleet.snapshot import Hold, JobResult, PodSet
from providers.kube.objects.instants import instant_of
from providers.kube.objects.jobs.asked import restored
from providers.kube.objects.jobs.templates import Marked, Role, cleared, marked
from providers.kube.objects.json_patch import put
from providers.kube.objects.shapes import JsonObject, dig
from providers.kube.resources import ResourcePath

GroupKind = tuple[str, str]
"""API group and kind."""

NOT_RECORDED: Final[Mapping[str, Any]] = {}


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
    """What the agent has to know of one kind of work."""

    path: ResourcePath
    kind: str
    optional: bool = True
    """A cluster need not serve it."""
    hold: Hold = Hold.SWITCH
    shaped_below: bool = False
    """Its pod sets are those of the job it makes."""
    switch: tuple[str, ...] = ("spec", "suspend")
    owns: frozenset[GroupKind] = frozenset()
    """Kinds of work it makes below itself: they are its own affair and no gangs of their own."""

    @property
    def group_kind(self) -> GroupKind:
        """What identifies it: other groups may have a kind of the same name."""
        return self.path.group, self.kind

    @abstractmethod
    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Its pod sets, in the order in which they matter."""

    @abstractmethod
    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """How it ended; None while it has not."""

    def counts(self, raw: JsonObject) -> Counts:
        """How many of its pods are ready, and active."""
        return Counts()

    def remaining(self, raw: JsonObject) -> Mapping[str, int]:
        """Pod set -> pods it still needs, where these are fewer than it asks for at once; nothing where not known."""
        return {}

    def restarts(self, raw: JsonObject) -> Mapping[str, int]:
        """Pod set -> how many of its pods may be lost now and are made anew while the others go on.

        Only what its own controller is sure to do: who says nothing here is stopped whole, which nothing counts
        against it.
        """
        return {}

    def manageable(self, raw: JsonObject) -> bool:
        """Whether it can be held and started at all; one that cannot is left alone."""
        return True

    def suspended(self, raw: JsonObject) -> bool:
        """Whether it makes no pods now."""
        return bool(dig(raw, *self.switch))

    def resume(self, raw: JsonObject, pod_sets: Sequence[PodSet]) -> JobChange:
        """Let it make the pods that were admitted (all it asks for, unless `pod_sets` has fewer)."""
        return JobChange(put(raw, self.switch, value=False))

    def pause(self, raw: JsonObject) -> JobChange:
        """Let it end its pods and make no more, and ask for what it asked for."""
        return JobChange([*restored(raw), *([] if self.suspended(raw) else put(raw, self.switch, value=True))])

    def marked(self, action: StartJob, raw: JsonObject) -> Marked:
        """What the start changes so that its pods come gated, labelled and tolerating; no operations when they do."""
        return marked(self.roles(raw), action, raw)

    def cleared(self, raw: JsonObject) -> list[JsonObject]:
        """The operations that take it all away again."""
        return cleared(self.roles(raw), raw)

    def prepare(self, action: StartJob, raw: JsonObject) -> Preparation | None:
        """What must be written before the start; None when nothing is."""
        return None

    def malleable(self, raw: JsonObject) -> bool:
        """Whether the write that stops it may change its templates, too."""
        return True


def ended(raw: JsonObject, succeeded: str) -> JobOutcome | None:
    """What the conditions say, of which that or Failed is True at the end."""
    for kind, result in ((succeeded, JobResult.SUCCEEDED), ("Failed", JobResult.FAILED)):
        for condition in dig(raw, "status", "conditions") or ():
            if condition["type"] == kind and condition.get("status") == "True":
                return JobOutcome(result, instant_of(condition.get("lastTransitionTime")))
    return None


def number(value: int | None, default: int) -> int:
    """A count that may be left out."""
    return default if value is None else int(value)
