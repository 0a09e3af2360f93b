"""Of GPUs that pods hold: what is used of them, what would be enough, and who does nothing with them."""

from collections.abc import Iterator

from fleet.cost.sizing import FEW_READINGS, UseReport
from model.plain_text import age


def use_lines(report: UseReport) -> Iterator[str]:
    """Yields what was seen and what it comes to, line by line."""
    pods = {(it.last.namespace, it.last.pod) for it in report.uses}
    yield f"{len(pods)} pods hold {len(report.uses)} GPUs and slices; advice keeps a fifth in hand"
    few = sum(it.readings < FEW_READINGS for it in report.uses)
    if few:
        yield f"of {few} there are fewer than {FEW_READINGS} readings, and nothing is concluded"
    for it in report.uses:
        seen = f"{100 * it.active:.0f} % active, {it.most_mib:,.0f} MiB at most, {it.readings} readings"
        yield f"{it.last.namespace}/{it.last.pod}  holds {it.holds} on {it.last.node}: {seen}"
    yield from sizing_lines(report)
    for it in report.idle:
        yield f"idle: {it.last.namespace}/{it.last.pod} has done nothing with {it.holds} for {age(it.idle_s)}"


def sizing_lines(report: UseReport) -> Iterator[str]:
    """Yields the advice alone."""
    for one in report.advice:
        pod = f"{one.use.last.namespace}/{one.use.last.pod}"
        yield f"advice: {pod}: {one.words} would be enough: {one.saves_usd:,.0f} USD a month less"
