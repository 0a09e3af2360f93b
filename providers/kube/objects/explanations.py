"""The short form of an explanation in the status of a Workload: for `kubectl describe`, and who may read no more."""

from typing import Final

from fleet.explain.gang import GangExplanation
from fleet.explain.quota_holders import QuotaHolder
from fleet.snapshot import Gang
from model.plain_text import plain
from model.quantity import format_amount
from providers.kube.objects.instants import format_instant, whole_instant
from providers.kube.objects.names import API_VERSION
from providers.kube.objects.shapes import JsonObject, set_fields
from providers.kube.objects.workloads import KIND

EXPLAINED_BY: Final = "muster-explain"
"""Owner of the field in server-side apply: the actuator writes the rest of the status; neither touches the other."""
ADVICE_SHOWN: Final = 3
NOTES_SHOWN: Final = 8
WORDS_MOST: Final = 600


def explanation_status(gang: Gang, told: GangExplanation | None) -> JsonObject:
    """The body of the apply; without an explanation the field is given up, and goes."""
    metadata = {"name": gang.workload, "namespace": gang.namespace}
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": {}}
    return body if told is None else {**body, "status": {"explanation": _short(told)}}


def _short(told: GangExplanation) -> JsonObject:
    failing, position, start = told.waits_for, told.position, told.start
    return {"at": format_instant(told.at_s)} | set_fields(
        waitsFor=str(failing.step) if failing is not None else "",
        why=_words(failing.message) if failing is not None else "",
        position={"place": position.place, "of": position.of} if position is not None else None,
        heldBy=[_words(_holder(it)) for it in told.holders[:ADVICE_SHOWN]],
        start=None
        if start is None
        else set_fields(
            p50=_instant(start.p50_s),
            p90=_instant(start.p90_s),
            basis=_words(start.basis),
            unknownBecause=_words(start.why_unknown),
        ),
        wouldHelp=[_words(words) for words in _would_help(told)],
        cost=set_fields(
            usdPerHour=_usd(told.cost.usd_h or told.cost.would_usd_h),
            soFar=_usd(told.cost.so_far_usd),
            atRunTime=_usd(told.cost.at_run_time_usd),
            lostIfEvicted=_usd(told.cost.lost_usd),
        ),
        notes=[_words(note) for note in told.notes[:NOTES_SHOWN]],
    )


def _would_help(told: GangExplanation) -> list[str]:
    """Returns what was found to have it start; where nothing was, what is others' to do about its reason."""
    if told.waits_for is None:
        return []
    return [it.words for it in (told.advice or ())[:ADVICE_SHOWN]] or [told.remedy] * bool(told.remedy)


def _instant(at_s: float | None) -> str:
    return whole_instant(at_s) if at_s is not None else ""


def _usd(amount: float | None) -> float | None:
    return round(amount, 2) or None if amount else None


def _holder(it: QuotaHolder) -> str:
    until = "nobody knows until when" if it.ends_s is None else f"until {whole_instant(it.ends_s)} ({it.ends_by})"
    return f"{it.gang}: {format_amount(it.resource, it.amount)} {it.resource} of {it.flavor}, {until}"


def _words(text: str) -> str:
    return plain(text)[:WORDS_MOST]
