"""How far the world has come to be what is declared: a revision in force is applied at once, and done much later.

What is left is read from declared against observed, not from what a plan foresaw: machines that differ from their
pools or whose pools have gone, MIG layouts that are not cut yet, machines that fixed pools lack, and the gangs that
were leaving when the revision came. Machines for work that waits are no part of it: work comes at any time.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import nsmallest
from typing import Final

from fleet.actions import claim_subject, gang_subject, pool_subject
from fleet.explain.verdicts import verdicts
from fleet.mig.layouts import pool_layouts
from fleet.mig.mixed_cuts import follows
from fleet.nodeclaims.drift import drifted_claims
from fleet.snapshot import Claim, ClaimState, GangState, Snapshot
from fleet.snapshot.lookups import claims_by_pool
from model.fleet import Fleet
from model.plain_text import counted

STALLED_AFTER_S: Final = 900.0
"""Nothing was finished for this long: somebody should look (kstatus' `Stalled`; Deployments wait ten minutes)."""
_NAMED = 3  # subjects in a message
_GANG = gang_subject("")


class ConvergencePhase(StrEnum):
    """Whether something of a revision is left to do, and whether it comes forward."""

    PROGRESSING = "Progressing"
    STALLED = "Stalled"
    DONE = "Done"


@dataclass(frozen=True, slots=True)
class Convergence:
    """What is left to do of the revision in force; times in epoch seconds. Once done, it stays so."""

    revision: str
    began_s: float
    moved_at_s: float
    """When something of it was finished last; `began_s` before that."""
    phase: ConvergencePhase = ConvergencePhase.PROGRESSING
    total: int = 0
    """All that was ever seen to be left: machines, gangs, places of fixed pools."""
    left: int = 0
    message: str = ""
    subjects: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Those left; empty also where they are not known, after a restart."""

    @property
    def counted(self) -> bool:
        """Returns whether anybody has looked yet."""
        return self.phase is not ConvergencePhase.PROGRESSING or self.total > 0

    @property
    def stalls_at_s(self) -> float:
        """Returns when what is left has stalled, unless something is finished before (epoch seconds)."""
        return self.moved_at_s + STALLED_AFTER_S


def left_to_do(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, str]:
    """Returns subject -> what is left to do about it, in words. Costs a look at every claim and gang."""
    found = {claim_subject(name): words for name, words in drifted_claims(fleet, snapshot).items()}
    for claim in snapshot.claims.values():
        if words := _layout_left(fleet, snapshot, claim):
            found.setdefault(claim_subject(claim.name), words)
    found |= _lacking(fleet, snapshot, found.keys())
    leaving = (gang for gang in snapshot.gangs.values() if gang.state is GangState.EVICTING)
    return found | {gang_subject(gang.uid): f"{gang.name} is leaving" for gang in leaving}


def _layout_left(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> str:
    if not claim.layout:
        return ""
    if claim.ready_at_s and claim.recut_at_s > claim.ready_at_s:
        return f"its GPUs are being cut to {claim.layout}"
    pool, machine = fleet.node_pools.get(claim.node_pool), snapshot.catalog.types.get(claim.capacity_pool.instance_type)
    allowed = pool_layouts(fleet, pool) if pool else {}
    return f"its GPUs are cut to {claim.layout}" if allowed and not follows(claim, machine, allowed) else ""


def _lacking(fleet: Fleet, snapshot: Snapshot, differing: AbstractSet[str]) -> dict[str, str]:
    """Returns the places of fixed pools that no ready machine fills, and the machines that are too many there.

    `differing` are subjects counted already: such a machine fills a place until the one that replaces it is ready.
    """
    found: dict[str, str] = {}
    for name, pool in fleet.node_pools.items():
        if (replicas := pool.spec.replicas) is None:
            continue
        claims = claims_by_pool(snapshot).get(name, ())
        ready = sum(claim.state is ClaimState.READY for claim in claims)
        alike = sum(claim_subject(claim.name) not in differing for claim in claims)
        words = f"{ready} of its {counted(replicas, 'machine')} are ready"
        found |= {f"{pool_subject(name)}/{place}": words for place in range(ready, replicas)}
        words = f"it has {counted(alike, 'machine')} and keeps {replicas}"
        found |= {f"{pool_subject(name)}/+{place}": words for place in range(replicas, alike)}
    return found


def began(revision: str, now_s: float) -> Convergence:
    """Returns the state of a revision that has just come into force, before anybody has looked."""
    return Convergence(revision, now_s, now_s, message="what is left to do is being counted")


def looked_at(before: Convergence, fleet: Fleet, snapshot: Snapshot) -> Convergence:
    """Returns what is left now. A gang that began to leave later leaves for another reason, and does not count."""
    if before.phase is ConvergencePhase.DONE:
        return before
    known, first = before.subjects, not before.total
    seen = left_to_do(fleet, snapshot)
    words = {it: why for it, why in seen.items() if first or it in known or not it.startswith(_GANG)}
    total = before.total + (len(words.keys() - known) if known else max(0, len(words) - before.left))
    gone = bool(known - words.keys()) or (not known and len(words) < before.left)
    moved_at_s = snapshot.now_s if gone else before.moved_at_s
    failing = _failing(snapshot, words)
    stalled = bool(failing) or snapshot.now_s - moved_at_s >= STALLED_AFTER_S
    phase = ConvergencePhase.STALLED if stalled else ConvergencePhase.PROGRESSING
    phase = phase if words else ConvergencePhase.DONE
    after = replace(before, moved_at_s=moved_at_s, phase=phase, total=total, left=len(words), subjects=frozenset(words))
    if phase is before.phase and after.subjects == known and known:
        return replace(after, message=before.message)
    return replace(after, message=_told(after, words, failing, fleet, snapshot))


def _failing(snapshot: Snapshot, words: Mapping[str, str]) -> str:
    """Returns the first thing about what is left that fails again and again; empty where nothing does."""
    for claim in snapshot.claims.values():
        if claim_subject(claim.name) in words and (claim.refused or claim.failure):
            why = claim.refused.message if claim.refused else claim.failure.cause if claim.failure else ""
            return f"{claim_subject(claim.name)}: {why}"
    return ""


def _told(now: Convergence, words: Mapping[str, str], failing: str, fleet: Fleet, snapshot: Snapshot) -> str:
    """Returns the counts, and the first of what is left; where nothing moves, also what holds it."""
    if not words:
        return f"all {now.total} are as declared" if now.total else "nothing was left to do"
    stalled = now.phase is ConvergencePhase.STALLED
    first = nsmallest(_NAMED, words)
    named = "; ".join(f"{it}: {words[it]}{_held(fleet, snapshot, it) if stalled else ''}" for it in first)
    more = f"; and {now.left - _NAMED} more" if now.left > _NAMED else ""
    counts = f"{now.total - now.left} of {now.total} are as declared"
    if not stalled:
        return f"{counts}; left: {named}{more}"
    still = f"it keeps failing ({failing})" if failing else f"none for {STALLED_AFTER_S / 60:.0f} minutes"
    return f"{counts}, {still}; left: {named}{more}"


def _held(fleet: Fleet, snapshot: Snapshot, subject: str) -> str:
    """Returns what keeps a machine that differs where it is, as `muster explain node` says it; empty for others."""
    kind, _, name = subject.partition("/")
    claim = snapshot.claims.get(name) if kind == "claim" else None
    said = verdicts(fleet, snapshot, claim) if claim is not None else ()
    return next((f" ({it.message})" for it in said if it.method == "drift" and it.message), "")
