"""The journal and the decision log: an entry for every decision acted on and every machine bought or returned.

For people and audits; nothing is ever read back from it to decide.
"""

import json
from collections import Counter
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, TextIO

import structlog

from agent.inbox import Done, Failed
from agent.mirror import Mirror
from agent.sync import Sync
from agent.watch import Watcher
from fleet.actions import (
    Action,
    Announce,
    Consider,
    LaunchMachines,
    NominatePods,
    OpenClaims,
    OpenGang,
    PurchaseTally,
    SaveClaim,
    SaveGang,
    TerminateMachines,
)
from fleet.snapshot import Claim, Gang, PodVerdict, Proposal

log = structlog.get_logger("muster")


class Journal(Watcher):
    """Appends to a file; each line is flushed, so that a kill loses at most the line being written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("a", encoding="utf-8")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """What is about to be done."""
        for entry in entries(action, mirror):
            self._write(now_s, entry)

    def ended(self, event: Done | Failed, now_s: float) -> None:
        """What launches and returns came to."""
        for entry in outcome_entries(event):
            self._write(now_s, entry)

    def told(self, event: Announce, now_s: float) -> None:
        """What became of a revision, by whose hands."""
        self._write(now_s, sync_entry(event))

    def _write(self, now_s: float, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps({"at_s": round(now_s, 3), **entry}) + "\n")
        self._file.flush()


def outcome_entries(event: Done | Failed) -> list[dict[str, Any]]:
    """The lines that the end of an action is worth: what a launch brought, which machines were given back."""
    if not isinstance(event, Done):
        return []
    action, outcome = event.action, event.outcome
    if isinstance(action, LaunchMachines) and outcome is not None:
        request = action.request
        return [
            {
                "event": "launched",
                "pool": request.node_pool,
                "capacity": str(request.pool),
                "asked": request.count,
                "instances": list(outcome.instances),
                "failures": [failure.code for failure in outcome.failures],
            }
        ]
    if isinstance(action, TerminateMachines):
        return [{"event": "returned", "instances": list(action.instance_ids), "reason": action.reason}]
    return []


def sync_entry(event: Announce) -> dict[str, Any]:
    """The line that a change of the FleetSync is worth."""
    return {"event": "sync", "reason": event.reason, "message": event.message}


JOURNAL_LINES_MOST = 2_000
_TAIL_BYTES = 512 * 1024


def latest_lines(path: Path) -> list[tuple[float, dict[str, Any]]]:
    """When and what, of the last lines of a journal's file, oldest first: to be shown. Broken lines are left out."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).splitlines()[-JOURNAL_LINES_MOST:]
    except OSError:
        return []
    return [line for line in map(_line, lines) if line is not None]


def _line(raw: bytes) -> tuple[float, dict[str, Any]] | None:
    try:
        said = json.loads(raw)
        return float(said.pop("at_s")), said
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class DecisionLog(Watcher):
    """Writes to the log what the journal writes to its file."""

    def __init__(self, sync: Sync) -> None:
        self._sync = sync

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """A decision is about to be carried out."""
        for entry in entries(action, mirror):
            fields = {name: value for name, value in entry.items() if name != "event"}
            log.info(entry["event"], revision=self._sync.state.applied, **fields)


def entries(action: Action, mirror: Mirror) -> list[dict[str, Any]]:
    """The lines an action is worth: changes of state of gangs and claims."""
    found: list[dict[str, Any]]
    match action:
        case OpenGang(gang=gang):
            found = [{"event": "queued", "gang": gang.name, "queue": gang.queue, "priority": gang.priority}]
        case SaveGang(gang=gang):
            found = _gang(gang, mirror.gangs.current.get(f"{gang.namespace}/{gang.workload}"))
        case OpenClaims(claims=claims, tally=tally):
            found = [*([_purchase(tally)] if tally else []), *(_claim(claim) for claim in claims)]
        case SaveClaim(claim=claim):
            found = _machine(claim, mirror.claims.current.get(claim.name))
        case Consider(outlook=outlook, withdrawn=withdrawn):
            before = set(mirror.outlook.proposals)
            fresh = [_proposal("proposed", it, it.message) for it in outlook.proposals if it not in before]
            found = [*(_proposal("withdrawn", it.proposal, it.why) for it in withdrawn), *fresh]
        case NominatePods(verdicts=verdicts):
            found = _ordinary_pods(verdicts, mirror.pod_verdicts)
        case _:
            found = []
    return found


def _ordinary_pods(verdicts: Mapping[str, PodVerdict], before: Mapping[str, PodVerdict]) -> list[dict[str, Any]]:
    """One line where other pods of no gang wait, or wait for something else than before."""
    found, known = (Counter(it.nominated for it in each.values()) for each in (verdicts, before))
    if found == known:
        return []
    return [{"event": "pods", "nominated": found[True], "without_machine": found[False]}]


def _gang(gang: Gang, before: Gang | None) -> list[dict[str, Any]]:
    if before is not None and (before.state, before.reason) == (gang.state, gang.reason):
        return []
    line = {"event": "gang", "gang": gang.name, "state": str(gang.state), "reason": str(gang.reason)}
    return [{**line, "message": gang.message}]


def _purchase(tally: PurchaseTally) -> dict[str, Any]:
    karpenter_usd_h = round(tally.karpenter_usd_h, 6) if isfinite(tally.karpenter_usd_h) else None
    return {
        "event": "purchase",
        "usd_h": round(tally.cost_usd_h, 6),
        "bound_usd_h": round(tally.bound_usd_h, 6),
        "one_kind_usd_h": round(tally.one_kind_usd_h, 6),
        "karpenter_usd_h": karpenter_usd_h,
        "beside_usd_h": round(tally.beside_usd_h, 6),
    }


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "event": "claim",
        "claim": claim.name,
        "pool": claim.node_pool,
        "capacity": str(claim.capacity_pool),
        "usd_h": claim.charged_usd_h,
        "gang": claim.gang,
        "purpose": claim.purpose,
    }


def _proposal(event: str, it: Proposal, message: str) -> dict[str, Any]:
    bought = ["/".join(map(str, key)) for key in it.bought]
    return {"event": event, "claims": list(it.claims), "buys": bought, "message": message}


def _machine(claim: Claim, before: Claim | None) -> list[dict[str, Any]]:
    if before is not None and before.state is claim.state and before.disruption == claim.disruption:
        return []
    reason = claim.disruption.reason if claim.disruption else ""
    return [{"event": "machine", "claim": claim.name, "state": str(claim.state), "reason": str(reason)}]
