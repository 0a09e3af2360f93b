"""`muster offers`: what could serve so many GPUs, cheapest first, and what is against each."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.cli import exits
from agent.cli.look import Look, UnknownRegion, look_at, look_away, price_words
from agent.cli.tables import TextTable, render, screen_width
from agent.cli.validate import read_folder, region_for
from fleet.explain.offers import GpuRequest, OfferObstacle, PurchaseOption, PurchaseOptions, UnknownGpu, offers_for
from model.loader import InvalidFleet, load
from model.plain_text import age, plain_lines
from model.report import text as problem_text
from providers.kube.errors import KubeError

COLUMNS = ("pool", "type", "zone", "capacity", "sharing", "each", "machines", "usd/h", "usd/unit-h", "total", "now")
_DROPPED = ("usd/unit-h", "each", "capacity", "usd/h", "sharing")
"""Columns that are left out of a terminal in which all have no room."""


@dataclass(frozen=True, slots=True)
class OffersRequest:
    """What is asked, of which fleet, and where to look."""

    ask: GpuRequest
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
        files = read_folder(request.fleet)
        fleet, region = load(files), region_for(request.region, files)
        look = look_at(request.kubeconfig, request.context, region) if request.world else look_away(region)
        answer = offers_for(fleet, look.snapshot, request.ask)
    except InvalidFleet as invalid:
        sys.stderr.write(problem_text(invalid.problems, colour=False) + "\n")
        return exits.INVALID
    except (UnknownGpu, UnknownRegion, KubeError, OSError) as error:
        exits.complain(error)
        return exits.ERROR
    told = (
        json.dumps(to_json(request.ask, answer, look), indent=2)
        if output == "json"
        else plain_lines(lines(request, answer, look))
    )
    sys.stdout.write(told + "\n")
    return exits.OK


def to_json(ask: GpuRequest, answer: PurchaseOptions, look: Look) -> dict[str, Any]:
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
        "offers": [_object(option) for option in answer.options],
        "why_none": [
            {"reason": str(refusal.reason), "message": refusal.message, "retry_at_s": refusal.retry_at_s}
            for refusal in answer.refusals
        ],
    }


def _object(option: PurchaseOption) -> dict[str, Any]:
    return {
        "pool": option.pool,
        "instance_type": option.instance_type,
        "zone": option.zone,
        "capacity_type": option.capacity_type,
        "sharing": option.sharing,
        "each": option.each,
        "machines": option.machines,
        "usd_per_hour": round(option.usd_h, 6),
        "usd_per_unit_hour": round(option.unit_usd_h, 6),
        "total_usd_per_hour": round(option.total_usd_h, 6),
        "machines_allowed": option.allowed,
        "short_until_s": option.short_until_s,
        "obstacle": str(option.obstacle),
    }


def lines(request: OffersRequest, answer: PurchaseOptions, look: Look) -> Iterator[str]:
    """The answer for people."""
    now, most = look.snapshot.now_s, request.most or len(answer.options)
    if answer.options:
        table = TextTable(
            COLUMNS, [_row(option, now) for option in answer.options[:most]], ("sharing", "now"), _DROPPED
        )
        yield from render(table, screen_width()).split("\n")
    if len(answer.options) > most:
        yield f"and {len(answer.options) - most} dearer; --most 0 shows all"
    for refusal in answer.refusals:
        again = f"; asked again in {age(refusal.retry_at_s - now)}" if refusal.retry_at_s else ""
        yield f"nothing can be bought now: {refusal.reason}: {refusal.message}{again}"
    yield f"prices: {price_words(look)}"
    if not request.world:
        yield "the cluster was not asked: limits count as if no machine ran, shortages are unknown; --world asks it"


def _row(option: PurchaseOption, now_s: float) -> dict[str, Any]:
    return {
        "pool": option.pool,
        "type": option.instance_type,
        "zone": option.zone,
        "capacity": option.capacity_type,
        "sharing": option.sharing,
        "each": option.each,
        "machines": option.machines,
        "usd/h": f"{option.usd_h:.2f}",
        "usd/unit-h": f"{option.unit_usd_h:.3f}",
        "total": f"{option.total_usd_h:.2f}",
        "now": _now(option, now_s),
    }


def _now(option: PurchaseOption, now_s: float) -> str:
    words = {
        OfferObstacle.NONE: "yes" if option.allowed is None else f"yes, {option.allowed} within limits",
        OfferObstacle.SHORT: f"short, for {age(option.short_until_s - now_s)} more",
        OfferObstacle.STOPPED: "no, its machines could not be cut",
        OfferObstacle.LIMIT: f"no, {option.allowed} within limits",
        OfferObstacle.FIXED: "no, the pool is fixed",
        OfferObstacle.MIN_VALUES: "no, too few kinds for minValues",
    }
    return words[option.obstacle]
