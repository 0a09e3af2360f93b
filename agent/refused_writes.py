"""Writes that the API keeps refusing: what they are about tells of it, in the API's own words, until they succeed.

A webhook that fails, a permission that is missing or a PodDisruptionBudget refuses the same write again and again,
while machines stand ready and bill. A single refusal is no news: conflicts and races end by themselves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agent.inbox import Done, Failed
from agent.mirror import Mirror
from fleet.actions import (
    NEEDED_TO_START,
    Action,
    CloseClaim,
    CloseGang,
    EvictPod,
    ForgetClaim,
    KeepHardFence,
    LiftHardFence,
    OpenClaims,
    OpenGang,
    PatchNode,
    PublishLayouts,
    ReleasePod,
    RemoveNode,
    SaveClaim,
    SaveGang,
    StartJob,
    StopJob,
    claim_subject,
    gang_subject,
)
from fleet.snapshot import LAYOUTS, WriteRefusal
from providers.kube.errors import AlreadyExists, Conflict, Expired, KubeError, NotFound, ServerError, TooManyRequests
from providers.kube.errors import Unreachable as NoAnswer

TOLD_AFTER: Final = 3
"""Refusals in a row after which a write is told of."""
FORGOTTEN_S: Final = 600.0
"""A write that nobody has tried again for this long is not told of any more: what it was for may have gone."""
KEPT_MOST: Final = 10_000

_RACES: Final = (Conflict, NotFound, AlreadyExists, Expired)
_LASTING: Final[Mapping[type, type[KubeError]]] = {PublishLayouts: KubeError, KeepHardFence: Conflict}
"""Writes for which some of these tell of more than a race: there is no such namespace, or others own what is there."""
_ENDS: Final = "NamespaceTerminating"
_WORDS: Final[Mapping[type, str]] = {
    OpenGang: "creating its Workload",
    SaveGang: "writing the status of its Workload",
    CloseGang: "deleting its Workload",
    StartJob: "starting its job",
    StopJob: "stopping its job",
    ReleasePod: "letting its pods onto their nodes",
    EvictPod: "evicting a pod",
    OpenClaims: "creating NodeClaims",
    SaveClaim: "writing the status of its NodeClaim",
    CloseClaim: "deleting its NodeClaim",
    ForgetClaim: "taking the finalizer off its NodeClaim",
    PatchNode: "changing its Node",
    RemoveNode: "deleting its Node",
    PublishLayouts: "writing MIG layouts and GPU sharing (is the component `mig` installed?)",
    KeepHardFence: "writing its ResourceQuota",
    LiftHardFence: "taking its ResourceQuota away",
}


class RefusedWrite(NamedTuple):
    """A write that is being refused. `subject` is a gang, a claim, a namespace, the MIG layouts, or a report's."""

    subject: str
    refusal: WriteRefusal
    stops_start: bool


def refusal_of(action: Action, error: KubeError) -> WriteRefusal | None:
    """Returns what there is to tell of a refused write; None where it says nothing about the object."""
    if type(action) not in _WORDS or _passes(action, error):
        return None
    if isinstance(error, TooManyRequests):
        return WriteRefusal("PodDisruptionBudget", _told(action, error)) if error.disruption_budget else None
    return None if _unanswered(error) else WriteRefusal(type(error).__name__, _told(action, error))


def _passes(action: Action, error: KubeError) -> bool:
    """Whether a refusal ends by itself: a race, or a namespace that is on its way out."""
    if any(cause.reason == _ENDS for cause in error.causes):
        return True
    return isinstance(error, _RACES) and not isinstance(error, _LASTING.get(type(action), ()))


def report_refusal(error: KubeError) -> WriteRefusal | None:
    """Returns what there is to tell of a refused report on what git declares; None where it says nothing about it."""
    if isinstance(error, (*_RACES, TooManyRequests)) or _unanswered(error):
        return None
    return WriteRefusal(type(error).__name__, f"writing it is refused: {error}")


def _unanswered(error: KubeError) -> bool:
    return isinstance(error, NoAnswer) and not isinstance(error, ServerError)


def _told(action: Action, error: KubeError) -> str:
    what = f"evicting pod {action.pod.key}" if isinstance(action, EvictPod) else _WORDS[type(action)]
    return f"{what} is refused: {error}"


@dataclass(slots=True)
class _Tried:
    write: RefusedWrite
    times: int
    last_s: float


@dataclass(slots=True)
class RefusedWrites:
    """The writes refused at present. The brain alone writes it; reporters look on."""

    _tried: dict[tuple[str, str, tuple[str, ...]], _Tried] = field(default_factory=dict)
    """(subject, kind of action, what it touches) -> what became of it."""

    def __iter__(self) -> Iterator[RefusedWrite]:
        """Those to tell of, by subject; of one subject the first only."""
        told: dict[str, RefusedWrite] = {}
        for it in self._tried.values():
            if it.times >= TOLD_AFTER:
                told.setdefault(it.write.subject, it.write)
        return iter([told[subject] for subject in sorted(told)])

    def failed(self, event: Failed, mirror: Mirror, now_s: float) -> RefusedWrite | None:
        """Take in a failure. Returns the write where it is to be told of from now on, or tells something else now."""
        if event.refusal is None or (subject := _subject(event.action, mirror)) is None:
            return None
        key = (subject, type(event.action).__name__, event.action.subjects)
        before = self._tried.pop(key, None)
        write = RefusedWrite(subject, event.refusal, isinstance(event.action, NEEDED_TO_START))
        self._tried[key] = after = _Tried(write, before.times + 1 if before else 1, now_s)
        while len(self._tried) > KEPT_MOST:
            del self._tried[next(iter(self._tried))]
        fresh = after.times == TOLD_AFTER or (after.times > TOLD_AFTER and before is not None and before.write != write)
        return write if fresh else None

    def done(self, event: Done, mirror: Mirror) -> None:
        """A write that succeeds is refused no more."""
        if self._tried and (subject := _subject(event.action, mirror)) is not None:
            self._tried.pop((subject, type(event.action).__name__, event.action.subjects), None)

    def forget(self, now_s: float) -> None:
        """Drop what has not been tried for long."""
        if self._tried:
            self._tried = {key: it for key, it in self._tried.items() if now_s < it.last_s + FORGOTTEN_S}

    def starts_refused(self) -> Mapping[str, WriteRefusal]:
        """Returns subject -> why what it needs to start cannot be written."""
        return {it.subject: it.refusal for it in self if it.stops_start}


def _subject(action: Action, mirror: Mirror) -> str | None:
    """Returns the gang or claim that a write is about: that of a pod, or of a node."""
    match action:
        case PublishLayouts():
            return LAYOUTS
        case EvictPod(pod=pod):
            return _claim_of(pod.node, mirror)
        case ReleasePod(pod=pod):
            workload = pod.workload or (action.marks.workload if action.marks else "")
            gang = mirror.gangs.current.get(f"{pod.namespace}/{workload}")
            return gang_subject(gang.uid) if gang else None
        case PatchNode(node=node) | RemoveNode(node=node):
            return _claim_of(node, mirror)
        case OpenClaims(claims=claims):
            return gang_subject(claims[0].gang) if claims[0].gang else claim_subject(claims[0].name)
    return action.subjects[0] if type(action) in _WORDS else None


def _claim_of(node: str, mirror: Mirror) -> str | None:
    found = next((claim.name for claim in mirror.claims.view.values() if claim.node == node), None)
    return claim_subject(found) if found is not None else None
