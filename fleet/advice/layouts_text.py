"""Advice on layouts in words: machines and their cuts, GPUs, USD a month and waits before and after."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.advice.layouts import AdvisedCut, LayoutAdvice, SlicesAsked
from fleet.cost.indicators import HOURS_A_MONTH
from fleet.optimize.cutting import StockCut
from fleet.replay.outcome import ReplayOutcome
from fleet.replay.render import amount, waited
from fleet.replay.virtual_run import LOOK_S


@dataclass(frozen=True, slots=True)
class JudgedLayouts:
    """Advice, what the same takes as declared (or why that cannot be), and both fleets replayed if there was work."""

    advice: LayoutAdvice
    declared: StockCut | str
    outcomes: tuple[ReplayOutcome, ReplayOutcome] | None


def improves(judged: JudgedLayouts) -> str:
    """Returns what is against the change; empty where it costs less, or more is served, and nobody waits longer."""
    if judged.outcomes is None:
        if isinstance(judged.declared, str) or judged.advice.usd_h < judged.declared.usd_h:
            return ""
        return "the layouts that are declared give the same for the same money"
    before, after = (_month_usd(it) for it in judged.outcomes)
    first, second = (it.total for it in judged.outcomes)
    if second.finished < first.finished:
        return f"{first.finished - second.finished} gangs fewer would end in the time replayed"
    if longer(first.wait_p95_s, second.wait_p95_s) or longer(first.wait_p50_s, second.wait_p50_s):
        return "waits would grow"
    more = second.finished > first.finished or longer(second.wait_p95_s, first.wait_p95_s)
    return "" if after < before or more else "it would cost as much, and nobody would wait less"


def longer(before_s: float, after_s: float) -> bool:
    """Returns whether somebody would notice: more than the minute between two looks, and more than a tenth."""
    return after_s > before_s + max(LOOK_S, before_s / 10)


def advice_lines(judged: JudgedLayouts) -> Iterator[str]:
    """Yields the lines of the advice."""
    advice = judged.advice
    yield from _asked(advice.asked)
    for pool in sorted({it.pool for it in advice.cuts}):
        cuts = advice.of_pool(pool)
        machines = sum(it.count for it in cuts)
        yield f"node pool {pool}: {machines} machines, {sum(it.count * it.gpus for it in cuts)} GPUs"
        if cuts[0].most_machines is not None and machines > cuts[0].most_machines:
            yield f"  more than its limits.nodes ({cuts[0].most_machines}), which stay as they are"
        yield from (f"  {it.count:>4} x {it.instance_type}  {it.layout.name}: {_cut(it)}" for it in cuts)
    yield from _needed(judged)
    if judged.outcomes is None:
        yield "no waits: these slices have no arrivals to replay"
    else:
        yield from _replays(*judged.outcomes)
    if against := improves(judged):
        yield f"not worth a change: {against}"


def _asked(asked: SlicesAsked) -> Iterator[str]:
    total = Counter[str]()
    for it in asked.demands:
        total[it.resource] += it.count
    yield "at once: " + ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
    if asked.whole:
        yield f"{asked.whole} gangs ask for whole GPUs and are not counted: pools that do not cut are for them"
    if asked.unserved:
        yield f"{asked.unserved} gangs ask for slices that no machine of these node pools may give, and are not counted"


def _cut(it: AdvisedCut) -> str:
    """The cut of a machine, GPU by GPU: `5 GPUs 1x3g.40gb+1x4g.40gb, 3 GPUs 1x7g.80gb`."""
    gpus = Counter[str]()
    for group in it.layout.spec.models[it.model]:
        name = "+".join(f"{count}x{profile}" for profile, count in sorted(group.profiles.items())) or "whole"
        gpus[name] += it.gpus if group.devices == "all" else len(group.devices)
    return ", ".join(f"{count} GPUs {name}" for name, count in gpus.items())


def _needed(judged: JudgedLayouts) -> Iterator[str]:
    advice, declared = judged.advice, judged.declared
    after = f"{advice.gpus} GPUs, {amount(advice.usd_h * HOURS_A_MONTH)} USD a month"
    above = advice.usd_h / advice.bound_usd_h - 1 if advice.bound_usd_h else 0.0
    yield f"for that at once: {after}; at most {100 * above:.1f} % above the least that could be"
    if isinstance(declared, str):
        yield f"with the layouts declared: impossible, {declared}"
        return
    yield f"with the layouts declared: {amount(declared.usd_h * HOURS_A_MONTH)} USD a month"


def _replays(before: ReplayOutcome, after: ReplayOutcome) -> Iterator[str]:
    yield f"{'replayed':<10} {'GPUs':>6} {'USD a month':>14} {'wait p50':>10} {'wait p95':>10} {'finished':>14}"
    for name, it in (("before", before), ("after", after)):
        total = it.total
        yield (
            f"{name:<10} {it.most_whole_gpus:>6} {amount(_month_usd(it)):>14} {waited(total.wait_p50_s):>10}"
            f" {waited(total.wait_p95_s):>10} {f'{total.finished} of {total.gangs}':>14}"
        )


def _month_usd(it: ReplayOutcome) -> float:
    return it.usd / it.lasts_s * 3600 * HOURS_A_MONTH
