"""Of a pool: what limits it, the way to its offers, what is short, and who waits for it."""

from collections.abc import Iterator

from agent.answers import NothingSo
from fleet.disruption.budgets import UNBOUNDED
from fleet.explain.gang_notes import isolation
from fleet.explain.pool import FunnelStep, PoolLimit, PoolView, ScheduleWindow, pool_view
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.hints import did_you_mean, listing
from model.plain_text import age
from model.quantity import format_amount


def pool_lines(fleet: Fleet, snapshot: Snapshot, name: str, prices: str) -> Iterator[str]:
    """Returns all there is to say of a declared pool; `prices` says how old they are. Errors: NothingSo."""
    check_pool(fleet, name)
    return lines(pool_view(fleet, snapshot, name), snapshot.now_s, prices)


def check_pool(fleet: Fleet, name: str) -> None:
    """Raises NothingSo where no such pool is declared."""
    if name not in fleet.node_pools:
        there = did_you_mean(name, fleet.node_pools) or f"declared: {listing(fleet.node_pools)}"
        raise NothingSo(f"no node pool {name!r}; {there}")


def lines(view: PoolView, now: float, prices: str) -> Iterator[str]:
    """The explanation, line by line; `prices` says how old they are."""
    spec = view.pool.spec
    machines = ", ".join(f"{count} {state}" for state, count in view.machines.items()) or "no machines"
    kept = f", keeps {spec.replicas}" if spec.replicas is not None else f", weight {spec.weight}"
    yield f"{view.pool.name}  ({machines}{kept})"
    if shared := isolation(spec.sharing):
        yield f"  sharing:  {shared}"
    yield from _listed("limits", map(_bound, view.bounds), "none")
    yield from _listed("budgets", (_window(window, now) for window in view.budgets), "none: all may go at once")
    yield f"  may go:   {', '.join(f'{_count(most)} {reason}' for reason, most in view.may_go.items())}"
    yield from _listed("freezes", (_window(window, now) for window in view.freezes), "none")
    yield from _listed("offers", _steps(view.steps), "none")
    short = (f"{pool}, for {age(until - now)} more" for pool, until in view.shortages.items())
    yield from _listed("short", short, "nothing")
    yield f"  prices:   {prices}"
    waiting = (
        f"{gang.name} for {age(now - gang.created_at_s)}: {gang.reason}: {gang.message}" for gang in view.waiting
    )
    yield from _listed("waiting", waiting, "nobody")
    coming = (f"{gang.name} for {age(now - gang.since_s)}: {gang.reason}: {gang.message}" for gang in view.coming)
    yield from _listed("buying", coming, "for nobody")


def _listed(title: str, rows: Iterator[str], none: str) -> Iterator[str]:
    """A row a line, the first behind the title."""
    shown = list(rows) or [none]
    for number, row in enumerate(shown):
        yield f"  {'' if number else title + ':':<10}{row}"


def _bound(bound: PoolLimit) -> str:
    used, most, left = (_amount(bound.name, amount) for amount in (bound.used, bound.most, max(0.0, bound.left)))
    over = "" if bound.left >= 0 else f", {_amount(bound.name, -bound.left)} over it"
    return f"{bound.name}: {used} of {most}, {left} left{over}"


def _amount(name: str, amount: float) -> str:
    if name == "usdPerHour":
        return f"{amount:.2f}"
    return str(int(amount)) if name == "nodes" else format_amount(name, int(amount))


def _window(window: ScheduleWindow, now_s: float) -> str:
    if window.open:
        return f"{window.name}: open"
    return f"{window.name}: closed" + (f", opens in {age(window.opens_s - now_s)}" if window.opens_s else "")


def _count(most: int) -> str:
    return "any number" if most >= UNBOUNDED // 2 else str(most)


def _steps(steps: tuple[FunnelStep, ...]) -> Iterator[str]:
    first, *rest = steps
    yield f"{first.offers} on sale: {first.types} types in {first.zones} zones"
    for step in rest:
        last = "  <- nothing is left" if step.empties else ""
        left = f"{step.offers} left, {step.types} types in {step.zones} zones"
        yield f"{-step.ruled_out:>7}  {step.condition}: {left}{last}"
