"""Status conditions (`meta/v1` Condition): what they are, reading them back, and when one has changed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from fleet.snapshot import DecisionFailure, WriteRefusal
from model.plain_text import plain
from providers.kube.objects.instants import instant_of, whole_instant
from providers.kube.objects.shapes import JsonObject, Wire, WireCondition

MESSAGE_MAX: Final = 32768
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")
_STATUS: Final = {True: "True", False: "False", None: "Unknown"}
_HOLDS: Final = {"True": True, "False": False}


@dataclass(frozen=True, slots=True)
class Finding:
    """What is true now: a condition without its history. `holds` None is `Unknown`."""

    type: str
    holds: bool | None
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """A finding, and since when (epoch seconds) it has had the same status."""

    type: str
    holds: bool | None
    reason: str
    message: str
    since_s: float


class _AnyStatus(Wire, frozen=True):
    conditions: list[WireCondition] | None = None


class _AnyMeta(Wire, frozen=True):
    generation: int = 0


class _AnyObject(Wire, frozen=True):
    metadata: _AnyMeta | None = None
    status: _AnyStatus | None = None


_decoder = msgspec.json.Decoder(_AnyObject)


def decode_standing(raw: bytes | Raw) -> tuple[tuple[Condition, ...], int]:
    """The conditions an object of any kind carries, and the generation of its specification (0: it says none)."""
    found = _decoder.decode(raw)
    generation = found.metadata.generation if found.metadata else 0
    return conditions_of(found.status.conditions if found.status else None), generation


def conditions_of(found: Iterable[WireCondition] | None) -> tuple[Condition, ...]:
    """Returns conditions as they were read."""
    return tuple(
        Condition(one.type, _HOLDS.get(one.status), one.reason, one.message, instant_of(one.last_transition_time))
        for one in found or ()
    )


def written(
    findings: Iterable[Finding], previous: Sequence[Condition], now_s: float, generation: int = 0
) -> list[JsonObject]:
    """The findings as conditions; `lastTransitionTime` moves only where the status did.

    `generation` is that of the object as it was read for this write; 0 where it is not known.
    """
    before = {condition.type: condition for condition in previous}
    observed = {"observedGeneration": generation} if generation else {}
    return [_condition(finding, before.get(finding.type), now_s) | observed for finding in findings]


def _condition(finding: Finding, before: Condition | None, now_s: float) -> JsonObject:
    same = before is not None and before.holds is finding.holds and before.since_s > 0
    since_s = before.since_s if before is not None and same else now_s
    return {
        "type": finding.type,
        "status": _STATUS[finding.holds],
        "lastTransitionTime": whole_instant(since_s),
        "reason": condition_reason(finding.reason),
        "message": plain(finding.message)[:MESSAGE_MAX],
    }


def condition_reason(text: str) -> str:
    """`text` if the API takes it as a reason (CamelCase, no spaces), else `Unspecified`."""
    return text if _REASON.fullmatch(text) else "Unspecified"


DECISION_FAILED: Final = "DecisionFailed"


def failure_findings(failure: DecisionFailure | None) -> tuple[Finding, ...]:
    """The condition of an object that the agent could not decide about; none where it could."""
    return () if failure is None else (Finding(DECISION_FAILED, True, failure.error, failure.cause),)


WRITE_REFUSED: Final = "WriteRefused"


def refusal_findings(refusal: WriteRefusal | None) -> tuple[Finding, ...]:
    """The condition of an object about which the API keeps refusing a write; none where it does not."""
    return () if refusal is None else (Finding(WRITE_REFUSED, True, refusal.reason, refusal.message),)


def refusal_from(conditions: Iterable[Condition]) -> WriteRefusal | None:
    """The refused write that an object's conditions tell of."""
    found = find(conditions, WRITE_REFUSED)
    return WriteRefusal(found.reason, found.message) if found is not None and found.holds else None


def failure_from(conditions: Iterable[Condition]) -> DecisionFailure | None:
    """The failure that an object's conditions tell of."""
    found = find(conditions, DECISION_FAILED)
    return DecisionFailure(found.reason, found.message) if found is not None and found.holds else None


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of that type."""
    return next((condition for condition in conditions if condition.type == kind), None)
