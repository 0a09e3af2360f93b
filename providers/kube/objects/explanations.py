"""The short form of an explanation in the status of a Workload: for `kubectl describe`, and who may read no more."""

from typing import Final

import msgspec
from msgspec import Raw

from fleet.explain.gang import GangExplanation
from fleet.snapshot import Gang
from model.plain_text import plain
from providers.kube.objects.instants import format_instant
from providers.kube.objects.names import API_VERSION
from providers.kube.objects.shapes import JsonObject, Wire, set_fields
from providers.kube.objects.workloads import KIND

EXPLAINED_BY: Final = "muster-explain"
"""Owner of the field in server-side apply: the actuator writes the rest of the status; neither touches the other."""
ADVICE_SHOWN: Final = 3
NOTES_SHOWN: Final = 8
WORDS_MOST: Final = 600


class ShortPosition(Wire, frozen=True):
    """Place in the queue."""

    place: int = 0
    of: int = 0


class ShortStart(Wire, frozen=True):
    """When it starts."""

    p50: str = ""
    p90: str = ""
    basis: str = ""
    unknown_because: str = ""


class ShortCost(Wire, frozen=True):
    """What it costs, USD."""

    usd_per_hour: str = ""
    so_far: str = ""
    at_run_time: str = ""
    lost_if_evicted: str = ""


class ShortExplanation(Wire, frozen=True):
    """What a Workload's status says beside what was decided."""

    at: str = ""
    waits_for: str = ""
    why: str = ""
    position: ShortPosition | None = None
    held_by: list[str] = []  # noqa: RUF012  msgspec copies it
    start: ShortStart | None = None
    would_help: list[str] = []  # noqa: RUF012
    cost: ShortCost | None = None
    notes: list[str] = []  # noqa: RUF012
    """What else is to be said, a `subject: words` each."""


def explanation_status(gang: Gang, told: GangExplanation | None) -> JsonObject:
    """The body of the apply; without an explanation the field is given up, and goes."""
    metadata = {"name": gang.workload, "namespace": gang.namespace}
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": {}}
    return body if told is None else {**body, "status": {"explanation": _short(told)}}


def _short(told: GangExplanation) -> JsonObject:
    failing, position, start = told.waits_for, told.position, told.start
    holders = [_words(f"{it.gang}: {it.amount} {it.resource} of {it.flavor}") for it in told.holders[:ADVICE_SHOWN]]
    return {"at": format_instant(told.at_s)} | set_fields(
        waitsFor=str(failing.step) if failing is not None else "",
        why=_words(failing.message) if failing is not None else "",
        position={"place": position.place, "of": position.of} if position is not None else None,
        heldBy=holders,
        start=None
        if start is None
        else set_fields(
            p50=_instant(start.p50_s),
            p90=_instant(start.p90_s),
            basis=_words(start.basis),
            unknownBecause=_words(start.why_unknown),
        ),
        wouldHelp=[_words(it.words) for it in (told.advice or ())[:ADVICE_SHOWN]],
        cost=set_fields(
            usdPerHour=_usd(told.cost.usd_h or told.cost.would_usd_h),
            soFar=_usd(told.cost.so_far_usd),
            atRunTime=_usd(told.cost.at_run_time_usd),
            lostIfEvicted=_usd(told.cost.lost_usd),
        ),
        notes=[_words(note) for note in told.notes[:NOTES_SHOWN]],
    )


def _instant(at_s: float | None) -> str:
    return format_instant(at_s) if at_s is not None else ""


def _usd(amount: float | None) -> str:
    return f"{amount:.2f}" if amount else ""


def _words(text: str) -> str:
    return plain(text)[:WORDS_MOST]


class _Explained(Wire, frozen=True):
    explanation: ShortExplanation | None = None


class _ExplainedWorkload(Wire, frozen=True):
    status: _Explained | None = None


_decoder = msgspec.json.Decoder(_ExplainedWorkload)


def decode_explanation(raw: bytes | Raw) -> ShortExplanation | None:
    """What a Workload says of itself in short; None before it was told."""
    found = _decoder.decode(raw).status
    return found.explanation if found is not None else None
