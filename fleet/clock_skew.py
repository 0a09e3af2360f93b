"""Timestamps of the future are put right: written by an agent whose clock was ahead, they would make time-outs late.

A claim that was launched in an hour would be waited for an hour too long, a gang that was evicted then would stay out
of its queue. Whatever follows from such a timestamp (a deadline, the end of a pause) keeps its distance from it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Final

from fleet.actions import SaveClaim, SaveGang, claim_subject, gang_subject
from fleet.fence import Decided, each
from fleet.snapshot import Claim, Gang, Snapshot
from model.fleet import Fleet
from model.index import Index, derived, followed_each

TOLERANCE_S: Final = 30.0
"""Clocks of well-kept machines are closer than this to each other."""
_OF_CLAIMS: Final = ("launched_at_s", "registered_at_s", "ready_at_s", "emptied_at_s", "recut_at_s", "advised_at_s")
_OF_GANGS: Final = ("since_s", "quota_reserved_at_s", "admitted_at_s", "not_ready_since_s", "replacing_since_s")
_stamps_of_claim, _stamps_of_gang = attrgetter(*_OF_CLAIMS), attrgetter(*_OF_GANGS)


def decide(_fleet: Fleet, snapshot: Snapshot) -> Iterable[Decided]:
    """Returns a write for each claim and gang that says it has seen what is still to come."""
    late_s = snapshot.now_s + TOLERANCE_S
    if _latest_s(snapshot.index, _stamps_s(snapshot.index, snapshot.claims)) > late_s:
        yield from each(snapshot, _ahead(snapshot, snapshot.claims.values(), late_s), _save_claim(snapshot.now_s))
    if _latest_gang_s(snapshot.index, snapshot.gangs) > late_s:
        yield from each(snapshot, _gangs_ahead(snapshot, late_s), _save_gang(snapshot.now_s))


def _ahead(snapshot: Snapshot, claims: Iterable[Claim], late_s: float) -> Iterator[tuple[str, Claim]]:
    for claim in sorted(claims, key=lambda claim: claim.name):
        subject = claim_subject(claim.name)
        if _claim_s(claim) > late_s and subject not in snapshot.busy:
            yield subject, claim


def _gangs_ahead(snapshot: Snapshot, late_s: float) -> Iterator[tuple[str, Gang]]:
    for uid, gang in sorted(snapshot.gangs.items()):
        if _gang_s(gang) > late_s and gang_subject(uid) not in snapshot.busy:
            yield gang_subject(uid), gang


def _save_claim(now_s: float) -> Callable[[Claim], Iterator[SaveClaim]]:
    def save(claim: Claim) -> Iterator[SaveClaim]:
        right, disruption = _clamped(claim, _OF_CLAIMS, now_s), claim.disruption
        if disruption is not None and disruption.at_s > now_s:
            deadline_s = now_s + (disruption.deadline_s - disruption.at_s)
            right["disruption"] = replace(disruption, at_s=now_s, deadline_s=deadline_s)
        yield SaveClaim(replace(claim, **right))  # type: ignore[arg-type]

    return save


def _save_gang(now_s: float) -> Callable[[Gang], Iterator[SaveGang]]:
    def save(gang: Gang) -> Iterator[SaveGang]:
        right, eviction = _clamped(gang, _OF_GANGS, now_s), gang.eviction
        if eviction is not None and eviction.at_s > now_s:
            right["eviction"] = replace(eviction, at_s=now_s, admitted_at_s=min(eviction.admitted_at_s, now_s))
            right["requeue_at_s"] = now_s + max(0.0, gang.requeue_at_s - eviction.at_s)
        yield SaveGang(replace(gang, **right))  # type: ignore[arg-type]

    return save


def _clamped(it: Claim | Gang, names: Iterable[str], now_s: float) -> dict[str, object]:
    return {name: now_s for name in names if getattr(it, name) > now_s}


@derived()
def _latest_s(_index: Index, stamps_s: Mapping[str, float]) -> float:
    return max(stamps_s.values(), default=0.0)


@derived()
def _latest_gang_s(_index: Index, gangs: Mapping[str, Gang]) -> float:
    return max(map(_gang_s, gangs.values()), default=0.0)


@followed_each()
def _stamps_s(claim: Claim) -> float:
    return _claim_s(claim)


def _claim_s(claim: Claim) -> float:
    told_s = claim.disruption.at_s if claim.disruption else 0.0
    return float(max(told_s, *_stamps_of_claim(claim)))


def _gang_s(gang: Gang) -> float:
    evicted_s = gang.eviction.at_s if gang.eviction else 0.0
    return float(max(evicted_s, *_stamps_of_gang(gang)))
