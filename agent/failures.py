"""Subjects that deciders have failed on: left alone for a while, longer each time, and told of until they are well."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.backoff import Backoff
from agent.refused_writes import RefusedWrites
from fleet.actions import SaveClaim, SaveGang, claim_subject, gang_subject
from fleet.fence import EVERYBODY, DecisionFailed
from fleet.snapshot import Claim, DecisionFailure, Gang, Snapshot
from model.index import Index, derived


@dataclass(frozen=True, slots=True)
class SetAside:
    """A subject that a decider has failed on, again and again, since it last succeeded."""

    decider: str
    subject: str
    """Such as `gang/<uid>`; empty = the decider as a whole."""
    failure: DecisionFailure
    since_s: float
    times: int

    @property
    def kind(self) -> str:
        """`gang`, `claim`, `pool`, ...; `decider` where it is nobody's in particular."""
        return self.subject.partition("/")[0] or "decider"

    @property
    def words(self) -> str:
        """Says for people which decider failed on which subject, and how."""
        return f"{self.decider} failed on {self.subject or 'everything'}: {self.failure.error}: {self.failure.cause}"


@dataclass(slots=True)
class Failures:
    """The subjects set aside at present. The brain alone writes it; reporters look on."""

    _known: dict[tuple[str, str], SetAside] = field(default_factory=dict)
    writes: RefusedWrites = field(default_factory=RefusedWrites)
    """What the API keeps refusing, which is no decision's fault."""
    ledger: str = ""
    """Why nothing is written into the ledger at present; empty while it is, or there is none."""
    books: str = ""
    """What the books of this month may lack, and why; empty = nothing."""
    readings: str = ""
    """Which exporters of readings do not answer at present; empty while all do, or none is asked."""
    notifications: str = ""
    """Which sinks of notifications nothing reaches at present, and why; empty = none."""
    _pauses: Backoff = field(default_factory=Backoff)

    def __iter__(self) -> Iterator[SetAside]:
        """All of them, in the order in which they first failed."""
        return iter(list(self._known.values()))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._known)

    def about(self, subject: str) -> SetAside | None:
        """The failure that is told of a subject: the one that has lasted longest."""
        return next((it for it in self._known.values() if it.subject == subject), None)

    def paused(self, decider: str, now_s: float) -> frozenset[str]:
        """Subjects that this decider leaves alone for now; `EVERYBODY` among them: it does not run at all."""
        if not self._known:
            return frozenset()
        pausing = self._pauses.pausing(now_s)
        return frozenset(it.subject for it in self._known.values() if it.decider == decider and _key(it) in pausing)

    def settle(
        self, decider: str, failed: Sequence[DecisionFailed], paused: frozenset[str], now_s: float
    ) -> list[SetAside]:
        """Take in how one run of a decider went. Whoever was neither paused nor failed in it is well again."""
        asked = {it.subject: it for it in failed}
        for it in [it for it in self._known.values() if it.decider == decider]:
            whole_run_failed = EVERYBODY in asked and it.subject != EVERYBODY
            if it.subject not in asked and it.subject not in paused and not whole_run_failed:
                del self._known[decider, it.subject]
                self._pauses.succeeded(_key(it))
        return [self._failed(decider, it, now_s) for it in asked.values()]

    def _failed(self, decider: str, failed: DecisionFailed, now_s: float) -> SetAside:
        before = self._known.get((decider, failed.subject))
        since_s, times = (before.since_s, before.times + 1) if before else (now_s, 1)
        found = SetAside(decider, failed.subject, failed.failure, since_s, times)
        self._known[decider, failed.subject] = found
        self._pauses.failed(_key(found), now_s)
        return found


def _key(it: SetAside) -> str:
    return f"{it.decider} {it.subject}"


def failure_marks(failures: Failures, snapshot: Snapshot) -> Iterator[SaveGang | SaveClaim]:
    """Writes by which gangs and claims tell what is so now, where their conditions say otherwise.

    The conditions are `DecisionFailed` and `WriteRefused`.
    """
    failing = {it.subject: it.failure for it in reversed(list(failures))}
    refusals = {it.subject: it.refusal for it in failures.writes}
    told = failing.keys() | refusals.keys()
    for uid in sorted(_telling(snapshot.index, snapshot.gangs) | (_named("gang/", told) & snapshot.gangs.keys())):
        gang, subject = snapshot.gangs[uid], gang_subject(uid)
        failure, refusal = failing.get(subject), refusals.get(subject)
        if (gang.failure, gang.refused) != (failure, refusal):
            yield SaveGang(replace(gang, failure=failure, refused=refusal))
    for name in sorted(_telling(snapshot.index, snapshot.claims) | (_named("claim/", told) & snapshot.claims.keys())):
        claim, subject = snapshot.claims[name], claim_subject(name)
        failure, refusal = failing.get(subject), refusals.get(subject)
        if (claim.failure, claim.refused) != (failure, refusal):
            yield SaveClaim(replace(claim, failure=failure, refused=refusal))


@derived(2)
def _telling(_index: Index, objects: Mapping[str, Gang] | Mapping[str, Claim]) -> frozenset[str]:
    """Those whose conditions tell of a failure."""
    return frozenset(name for name, it in objects.items() if it.failure is not None or it.refused is not None)


def _named(prefix: str, subjects: Iterable[str]) -> frozenset[str]:
    return frozenset(subject.removeprefix(prefix) for subject in subjects if subject.startswith(prefix))
