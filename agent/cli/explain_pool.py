"""`muster explain pool`: what limits it, the way to its offers, what is short, and who waits for it."""

import sys
from collections.abc import Iterator
from pathlib import Path

from agent.cli import exits
from agent.cli.look import Look, answered, look_at, price_words
from agent.cli.validate import read_folder, region_for
from fleet.disruption.budgets import UNBOUNDED
from fleet.explain.gang_notes import isolation
from fleet.explain.pool import FunnelStep, PoolLimit, PoolView, ScheduleWindow, pool_view
from model.hints import did_you_mean, listing
from model.loader import load
from model.plain_text import age, plain_lines
from model.quantity import format_amount


def explain_pool(name: str, folder: Path, region: str, kubeconfig: Path | None, context: str | None) -> int:
    """Print the explanation; the exit code."""
    return answered(lambda: _explained(name, folder, region, kubeconfig, context))


def _explained(name: str, folder: Path, region: str, kubeconfig: Path | None, context: str | None) -> int:
    files = read_folder(folder)
    fleet = load(files)
    if name not in fleet.node_pools:
        there = did_you_mean(name, fleet.node_pools) or f"declared: {listing(fleet.node_pools)}"
        exits.complain(f"no node pool {name!r}; {there}")
        return exits.ERROR
    look = look_at(kubeconfig, context, region_for(region, files))
    sys.stdout.write(plain_lines(lines(pool_view(fleet, look.snapshot, name), look)) + "\n")
    return exits.OK


def lines(view: PoolView, look: Look) -> Iterator[str]:
    """The explanation, line by line."""
    now, spec = look.snapshot.now_s, view.pool.spec
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
    yield f"  prices:   {price_words(look)}"
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
