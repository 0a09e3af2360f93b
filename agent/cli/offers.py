"""`muster offers`: what could serve so many GPUs, cheapest first, and what is against each."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from agent.answers import price_words
from agent.cli import exits
from agent.cli.tables import TextTable, render, table_width
from model.plain_text import age, plain_lines

COLUMNS = ("pool", "type", "zone", "capacity", "sharing", "each", "machines", "usd/h", "usd/unit-h", "total", "now")
_DROPPED = ("usd/unit-h", "each", "capacity", "usd/h", "sharing")
"""Columns that are left out of a terminal in which all have no room."""
Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OffersRequest:
    """What is asked, of which fleet, and where to look; empty text = any."""

    gpu: str
    count: int
    pool: str = ""
    zone: str = ""
    capacity_type: str = ""
    agent: str = ""
    """Address of the agent's page; it is asked where no files are named."""
    fleet: Path | None = None
    world: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    region: str = ""
    most: int = 0
    """Rows of the table; 0 = all."""
    cluster: str = ""
    """The Cluster of the files that is meant; empty = the only one, or that in whose folder they are."""

    @property
    def by_agent(self) -> bool:
        """Returns whether the agent is asked, of the fleet in force."""
        return bool(self.agent) and self.fleet is None and not self.region and not self.cluster


def show_offers(request: OffersRequest, output: str) -> int:
    """Print the answer; the exit code."""
    if not request.by_agent:
        from agent.cli.here import offers_here

        ask = request.gpu, request.count, request.pool, request.zone, request.capacity_type
        place = (request.kubeconfig, request.context) if request.world else None
        asked_of = request.fleet, request.region, request.cluster, place
        return offers_here(ask, *asked_of, lambda told: _show(request, told, output))
    asked = {
        "gpu": request.gpu,
        "count": request.count,
        "pool": request.pool,
        "zone": request.zone,
        "capacityType": request.capacity_type,
    }
    from agent.cli.explain import NotAnswered, ask_agent

    path = "/api/offers?" + urlencode({name: value for name, value in asked.items() if value})
    try:
        return _show(request, json.loads(ask_agent(request.agent, path, request.kubeconfig, request.context)), output)
    except (NotAnswered, OSError, ValueError) as error:
        exits.complain(error)
        return exits.ERROR


def _show(request: OffersRequest, told: Told, output: str) -> int:
    if output == "json":
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        sys.stdout.write(plain_lines(lines(request.most, told)) + "\n")
    return exits.OK


def lines(most: int, told: Told) -> Iterator[str]:
    """The answer for people; at most so many rows, 0 = all."""
    now, offers = told["observed_at_s"], told["offers"]
    shown = offers[:most] if most else offers
    if shown:
        table = TextTable(COLUMNS, [_row(offer, now) for offer in shown], ("sharing", "now"), _DROPPED)
        yield from render(table, table_width()).split("\n")
    if len(offers) > len(shown):
        yield f"and {len(offers) - len(shown)} dearer; --most 0 shows all"
    for refusal in told["why_none"]:
        again = f"; asked again in {age(refusal['retry_at_s'] - now)}" if refusal["retry_at_s"] else ""
        yield f"nothing can be bought now: {refusal['reason']}: {refusal['message']}{again}"
    prices = told["priced_at_s"], told["price_source"], told["agent_priced_at_s"]
    yield f"prices: {price_words(now, *prices)}"
    if not told["cluster_asked"]:
        yield "the cluster was not asked: limits count as if no machine ran, shortages are unknown; --world asks it"


def _row(offer: Told, now_s: float) -> dict[str, Any]:
    return {
        "pool": offer["pool"],
        "type": offer["instance_type"],
        "zone": offer["zone"],
        "capacity": offer["capacity_type"],
        "sharing": offer["sharing"],
        "each": offer["each"],
        "machines": offer["machines"],
        "usd/h": f"{offer['usd_per_hour']:.2f}",
        "usd/unit-h": f"{offer['usd_per_unit_hour']:.3f}",
        "total": f"{offer['total_usd_per_hour']:.2f}",
        "now": NOW_WORDS[offer["obstacle"]](offer, now_s),
    }


def _open(offer: Told, _now_s: float) -> str:
    allowed = offer["machines_allowed"]
    return "yes" if allowed is None else f"yes, {allowed} within limits"


NOW_WORDS: Final[Mapping[str, Callable[[Told, float], str]]] = {
    "": _open,
    "Short": lambda offer, now_s: f"short, for {age(offer['short_until_s'] - now_s)} more",
    "Stopped": lambda _offer, _now_s: "no, its machines could not be cut",
    "Limit": lambda offer, _now_s: f"no, {offer['machines_allowed']} within limits",
    "Fixed": lambda _offer, _now_s: "no, the pool is fixed",
    "MinValues": lambda _offer, _now_s: "no, too few kinds for minValues",
}
"""What is against an offer (`OfferObstacle`), in words."""
