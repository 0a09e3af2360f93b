"""`muster offers`: what could serve so many GPUs, cheapest first, and what is against each."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.cli import exits
from agent.cli.look import Look, UnknownRegion, look_at, look_away, price_words
from agent.cli.tables import TextTable, age, render
from agent.cli.validate import read_folder
from fleet.explain.offers import Answer, Ask, Choice, Obstacle, offers_for
from fleet.explain.unit import UnknownGpu
from model.loader import InvalidFleet, load
from model.report import text as problem_text
from providers.kube.errors import KubeError

COLUMNS = ("pool", "type", "zone", "capacity", "sharing", "each", "machines", "usd/h", "usd/unit-h", "total", "now")


@dataclass(frozen=True, slots=True)
class OffersRequest:
    """What is asked, of which fleet, and where to look."""

    ask: Ask
    fleet: Path
    world: bool
    kubeconfig: Path | None
    context: str | None
    region: str
    most: int
    """Rows of the table; 0 = all."""


def show_offers(request: OffersRequest, output: str) -> int:
    """Print the answer; the exit code."""
    try:
        fleet = load(read_folder(request.fleet))
        seen = look_at(request.kubeconfig, request.context, request.region) if request.world else None
        look = seen or look_away(request.region)
        answer = offers_for(fleet, look.snapshot, request.ask)
    except InvalidFleet as invalid:
        sys.stderr.write(problem_text(invalid.problems, colour=False) + "\n")
        return exits.INVALID
    except (UnknownGpu, UnknownRegion, KubeError, OSError) as error:
        sys.stderr.write(f"muster: {error}\n")
        return exits.ERROR
    told = (
        json.dumps(to_json(request.ask, answer, look), indent=2)
        if output == "json"
        else "\n".join(lines(request, answer, look))
    )
    sys.stdout.write(told + "\n")
    return exits.OK


def to_json(ask: Ask, answer: Answer, look: Look) -> dict[str, Any]:
    """The answer for programs; instants are epoch seconds, 0 where there is none, money is USD."""
    catalog = look.snapshot.catalog
    return {
        "gpu": ask.gpu,
        "count": ask.count,
        "observed_at_s": look.snapshot.now_s,
        "region": catalog.region,
        "priced_at_s": catalog.priced_at_s,
        "price_source": catalog.price_source,
        "agent_priced_at_s": look.agent_priced_at_s,
        "offers": [_object(choice) for choice in answer.choices],
        "why_none": [
            {"reason": str(refusal.reason), "message": refusal.message, "retry_at_s": refusal.retry_at_s}
            for refusal in answer.refusals
        ],
    }


def _object(choice: Choice) -> dict[str, Any]:
    return {
        "pool": choice.pool,
        "instance_type": choice.instance_type,
        "zone": choice.zone,
        "capacity_type": choice.capacity_type,
        "sharing": choice.sharing,
        "each": choice.each,
        "machines": choice.machines,
        "usd_per_hour": round(choice.usd_h, 6),
        "usd_per_unit_hour": round(choice.unit_usd_h, 6),
        "total_usd_per_hour": round(choice.total_usd_h, 6),
        "machines_allowed": choice.allowed,
        "short_until_s": choice.short_until_s,
        "obstacle": str(choice.obstacle),
    }


def lines(request: OffersRequest, answer: Answer, look: Look) -> Iterator[str]:
    """The answer for people."""
    now, most = look.snapshot.now_s, request.most or len(answer.choices)
    if answer.choices:
        yield render(TextTable(COLUMNS, [_row(choice, now) for choice in answer.choices[:most]]))
    if len(answer.choices) > most:
        yield f"and {len(answer.choices) - most} dearer; --most 0 shows all"
    for refusal in answer.refusals:
        again = f"; asked again in {age(refusal.retry_at_s - now)}" if refusal.retry_at_s else ""
        yield f"nothing can be bought now: {refusal.reason}: {refusal.message}{again}"
    yield f"prices: {price_words(look)}"
    if not request.world:
        yield "the cluster was not asked: limits as if nothing stood, shortages unknown; --world asks it"


def _row(choice: Choice, now_s: float) -> dict[str, Any]:
    return {
        "pool": choice.pool,
        "type": choice.instance_type,
        "zone": choice.zone,
        "capacity": choice.capacity_type,
        "sharing": choice.sharing,
        "each": choice.each,
        "machines": choice.machines,
        "usd/h": f"{choice.usd_h:.2f}",
        "usd/unit-h": f"{choice.unit_usd_h:.3f}",
        "total": f"{choice.total_usd_h:.2f}",
        "now": _now(choice, now_s),
    }


def _now(choice: Choice, now_s: float) -> str:
    words = {
        Obstacle.NONE: "yes" if choice.allowed is None else f"yes, {choice.allowed} within limits",
        Obstacle.SHORT: f"short, for {age(choice.short_until_s - now_s)} more",
        Obstacle.LIMIT: f"no, {choice.allowed} within limits",
        Obstacle.FIXED: "no, the pool is fixed",
        Obstacle.MIN_VALUES: "no, too few kinds for minValues",
    }
    return words[choice.obstacle]
