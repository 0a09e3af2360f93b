"""Pages about machines and money: the map of the fleet, one machine, prices and shortages, and what teams spend."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agent.spent import GangMoney, PastMonth
from agent.web.view import Looking, PageView, Part, paged
from fleet.catalog import InstanceOffer
from fleet.cost.allocation import MICRO, allocate, bill_to_come
from fleet.cost.machine_use import IDLE, UNOBSERVED
from fleet.cost.statement import Month
from fleet.explain.machine_tiles import MachineTile, machine_tiles
from fleet.explain.node import MachineView, node_view
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import Gang

BLOCK: Final = 100
"""Tiles that are sent together: of a large fleet only the blocks that have changed."""
CELLS_MOST: Final = 1_500
"""Machines of one page up to which GPUs are drawn one by one."""
TILES_MOST: Final = 12_000
COLOURS: Final = ("state", "team", "cost")
PALETTE: Final = 12
COST_STEPS: Final = (0.0, 1.0, 3.0, 10.0, 30.0, 60.0, 100.0)
"""USD an hour from which a machine has the next shade."""
OTHERS: Final = "others"


class TileCell(NamedTuple):
    """One GPU or slice of a tile."""

    size: str
    """`gpu`, or how many sevenths of one."""
    used: bool


class ShownTile(NamedTuple):
    """A tile as the map draws it; classes colour it."""

    name: str
    words: str
    state: str
    team: int
    """Number of the colour; -1 = nobody uses it."""
    cost: int
    cells: tuple[TileCell, ...]


class Shade(NamedTuple):
    """A line of the legend: a class and what it stands for."""

    css: str
    words: str
    tiles: int


def machines(look: Looking) -> PageView:
    """Every machine as a tile, by pool, coloured by state, team or cost; `pool` shows one pool alone."""
    by = look.asked("by") if look.asked("by") in COLOURS else COLOURS[0]
    pool, team, state = look.asked("pool"), look.asked("team"), look.asked("state")
    everything = machine_tiles(look.fleet, look.snapshot)
    numbers = _team_numbers(look, everything)
    found = [
        tile
        for tile in everything
        if (not pool or tile.pool == pool)
        and (not team or (team in numbers and team in tile.teams))
        and (not state or tile.state == state)
    ]
    shown = paged(found, look, TILES_MOST)
    drawn = len(shown.rows) <= CELLS_MOST
    head = {
        "by": by,
        "rows": shown,
        "pools": sorted({tile.pool for tile in everything} - {""}),
        "pool": pool,
        "team": team,
        "state": state,
        "legend": list(_legend(by, shown.rows, numbers)),
    }
    parts = [Part("head", "map_head.html", head)]
    groups: dict[str, list[MachineTile]] = {}
    for tile in shown.rows:
        groups.setdefault(tile.pool or "of no pool", []).append(tile)
    for title, group in groups.items():
        for at in range(0, len(group), BLOCK):
            block = {"title": title if not at else "", "count": len(group), "by": by, "numbers": numbers}
            parts.append(
                Part(f"m{len(parts)}", "map_block.html", {**block, "drawn": drawn, "tiles": group[at : at + BLOCK]})
            )
    return PageView("Machines", parts)


def _team_numbers(look: Looking, tiles: Sequence[MachineTile]) -> Mapping[str, int]:
    """Returns team -> number of its colour, by name; teams that the viewer may not know of share one."""
    seen = sorted({team for tile in tiles for team in tile.teams})
    own = look.scope.teams(look.fleet) if not look.scope.whole else frozenset(seen)
    return {team: number % PALETTE for number, team in enumerate(team for team in seen if team in own)}


def draw(tile: MachineTile, numbers: Mapping[str, int], drawn: bool) -> ShownTile:  # noqa: FBT001 - a template calls it
    """Returns a machine as the map draws it; `drawn`: with its GPUs and slices one by one."""
    mine = [team if team in numbers else OTHERS for team in tile.teams]
    used = ", ".join(f"{it.used}/{it.total} {it.resource.removeprefix('nvidia.com/')}" for it in tile.devices)
    words = (tile.name, tile.instance_type, tile.zone, tile.state, used, ", ".join(sorted(set(mine))))
    cells = tuple(_cells(tile)) if drawn else ()
    return ShownTile(tile.name, " · ".join(filter(None, words)), tile.state, _team(tile, numbers), _cost(tile), cells)


def _team(tile: MachineTile, numbers: Mapping[str, int]) -> int:
    return numbers.get(tile.teams[0], PALETTE) if tile.teams else -1


def _cost(tile: MachineTile) -> int:
    return sum(tile.usd_h >= step for step in COST_STEPS) - 1


def _cells(tile: MachineTile) -> Iterator[TileCell]:
    for device in tile.devices:
        profile = device.resource.rpartition("mig-")[2] if "mig-" in device.resource else ""
        size = profile.partition("g.")[0] if profile else "gpu"
        for number in range(min(device.total, 64)):
            yield TileCell(size if size.isdigit() else "gpu", number < device.used)


def _legend(by: str, tiles: Sequence[MachineTile], numbers: Mapping[str, int]) -> Iterator[Shade]:
    """Yields what the colours on the page stand for."""
    if by == "state":
        for state, count in sorted(Counter(tile.state for tile in tiles).items()):
            yield Shade(f"s-{state}", state, count)
    elif by == "team":
        counts = Counter(_team(tile, numbers) for tile in tiles)
        words: dict[int, list[str]] = {PALETTE: [OTHERS], -1: ["nobody"]}
        for team, number in numbers.items():
            words.setdefault(number, []).append(team)
        for number in (*range(PALETTE + 1), -1):
            if counts[number]:
                yield Shade(f"c{number}", ", ".join(words[number]), counts[number])
    else:
        costs = Counter(map(_cost, tiles))
        for number, step in enumerate(COST_STEPS):
            if costs[number]:
                yield Shade(f"k{number}", f"from {step:g} USD/h", costs[number])


def machine(look: Looking) -> PageView | None:
    """One machine: what it is, why it was bought, what stands on it."""
    [name] = look.names
    tile = next((it for it in machine_tiles(look.fleet, look.snapshot) if name in {it.name, it.node}), None)
    if tile is None:
        return None
    claim = look.snapshot.claims.get(tile.name)
    found: MachineView | None = node_view(look.snapshot, claim) if claim is not None else None
    own = [gang for gang in tile.holders if look.scope.sees(gang)]
    values = {
        "tile": tile,
        "why": tile.why if look.scope.whole else tile.why.partition(":")[0],
        "claim": claim,
        "view": found if look.scope.whole else None,
        "own": own,
        "hidden": len(tile.holders) - len(own),
        "now_s": look.snapshot.now_s,
    }
    return PageView(f"Machine {tile.name}", [Part("machine", "machine.html", values)])


# -- the market -------------------------------------------------------------------------------------------------------


def market(look: Looking) -> PageView:
    """What machines cost now, and what cannot be had."""
    snapshot, word = look.snapshot, look.asked("q")
    short = sorted((pool, until_s) for pool, until_s in snapshot.shortages.items() if until_s > snapshot.now_s)
    offers = [
        it for it in snapshot.catalog.offers if word in it.instance_type.name or word in it.instance_type.gpu_name
    ]
    rows = paged(sorted(offers, key=_offer_order), look)
    reserved = [it for _, it in sorted(snapshot.reservations.items())]
    values = {
        "rows": rows,
        "word": word,
        "now_s": snapshot.now_s,
        "priced_at_s": snapshot.catalog.priced_at_s,
        "short": dict(short),
    }
    parts = [
        Part("short", "shortages.html", {"short": short, "reserved": reserved, "now_s": snapshot.now_s}),
        Part("offers", "offers.html", values),
    ]
    return PageView("Prices and shortages", parts)


def _offer_order(offer: InstanceOffer) -> tuple[object, ...]:
    kind = offer.instance_type
    return (not kind.gpu_count, kind.name, offer.capacity_type, offer.zone)


# -- money ------------------------------------------------------------------------------------------------------------


class TeamMoney(NamedTuple):
    """What a payer has spent this month, spends an hour, and would have spent at the end (USD)."""

    team: str
    spent_usd: float
    usd_h: float
    forecast_usd: float
    budget_usd: float | None


class PastTeam(NamedTuple):
    """What a team's work, or nobody's, came to in a month by the ledger."""

    team: str
    usd: float
    borrowed_usd: float
    lost_usd: float
    gpu_h: float


def money(look: Looking) -> PageView:
    """The month by team, with a forecast, and months by the ledger; `team` lists what its gangs cost, `month` when."""
    chosen, month = look.asked("team"), look.asked("month")
    past = next((it for it in look.months if it.name == month), None)
    values: dict[str, Any] = {
        "rows": _money(look),
        "team": chosen,
        "now_s": look.snapshot.now_s,
        "idle": IDLE,
        "unobserved": UNOBSERVED,
    }
    parts = [Part("teams", "money.html", values)]
    if look.months:
        parts.append(Part("months", "money_months.html", {"rows": list(_months(look)), "month": month}))
    if past is not None:
        teams = [row for row in _past_teams(look, past) if not chosen or row.team == chosen]
        gangs = [it for it in past.gangs if _may_name(look, it) and (not chosen or it.team == chosen)]
        told = {
            "past": past,
            "teams": teams,
            "team": chosen,
            "rows": paged(gangs, look),
        }
        parts.append(Part("past", "money_past.html", told))
    elif chosen:
        costs = sorted(_gang_costs(look, chosen), key=lambda each: (-each[1], each[0].name, each[0].uid))
        parts.append(Part("gangs", "money_gangs.html", {**values, "rows": paged(costs, look)}))
        if others := _other_costs(look, chosen):
            parts.append(Part("others", "money_others.html", {**values, "rows": paged(others, look)}))
    return PageView("Money", parts)


def _past_teams(look: Looking, past: PastMonth) -> list[PastTeam]:
    """Returns what the viewer may know of a month, the dearest first."""
    own = look.scope.teams(look.fleet)
    found = [
        PastTeam(team, line.cost / MICRO, line.borrowed / MICRO, line.lost / MICRO, line.gpu_s / 3600)
        for team, line in past.teams.items()
        if look.scope.whole or team in own
    ]
    return sorted(found, key=lambda it: (-it.usd, it.team))


def _may_name(look: Looking, it: GangMoney) -> bool:
    return look.scope.namespaces is None or it.gang.partition("/")[0] in look.scope.namespaces


def _months(look: Looking) -> Iterator[tuple[PastMonth, PastTeam]]:
    """Yields each month and its total, as far as the viewer may know."""
    for past in look.months:
        rows = _past_teams(look, past)
        usd, gpu_h = sum(it.usd for it in rows), sum(it.gpu_h for it in rows)
        yield past, PastTeam("", usd, sum(it.borrowed_usd for it in rows), sum(it.lost_usd for it in rows), gpu_h)


def _money(look: Looking) -> list[TeamMoney]:
    snapshot, fleet = look.snapshot, look.fleet
    a_second = allocate(snapshot.index, look.used, 1.0).by_team
    teams = {*snapshot.spent_usd, *a_second, *(name for name, team in fleet.teams.items() if team.spec.budget)}
    own = look.scope.teams(fleet)
    end_s = Month.of(snapshot.now_s).end_s
    to_come = bill_to_come(snapshot.index, look.used, snapshot.now_s, end_s).by_team
    found = []
    for team in sorted(it for it in teams if look.scope.whole or it in own):
        spent, usd_h = snapshot.spent_usd.get(team, 0.0), a_second.get(team, 0) * 3600 / MICRO
        declared = fleet.teams.get(team)
        budget = declared.spec.budget.usd_per_month if declared is not None and declared.spec.budget else None
        found.append(TeamMoney(team, spent, usd_h, spent + to_come.get(team, 0) / MICRO, budget))
    return found


class OtherCost(NamedTuple):
    """What the pods of no gang that one owner has made hold, and cost an hour (USD)."""

    name: str
    devices: str
    usd_h: float


def _other_costs(look: Looking, team: str) -> list[OtherCost]:
    """Returns what pods of no gang cost a team, the dearest first: with its gangs it is what the team pays."""
    found: dict[str, OtherCost] = {}
    seen, gangs = look.scope.namespaces, look.snapshot.gangs
    for use in look.used.values():
        for it in use.holdings:
            if it.team == team and it.subject not in gangs and (seen is None or it.namespace in seen):
                before = found.get(it.subject, OtherCost("", "", 0.0))
                devices = ", ".join(dict.fromkeys(words for words in (before.devices, it.devices) if words))
                name = f"{it.namespace}/{it.name}"
                found[it.subject] = OtherCost(name, devices, before.usd_h + use.usd_h * it.share)
    return sorted(found.values(), key=lambda it: (-it.usd_h, it.name))


def _gang_costs(look: Looking, team: str) -> Iterator[tuple[Gang, float]]:
    for gang in look.gangs:
        if gang.holds_capacity and payer_of(look.fleet, gang.namespace, gang.queue) == team:
            yield gang, look.usd_h(gang)
