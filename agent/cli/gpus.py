"""`muster gpus advise`: what pods use of the GPUs and slices they hold, by dcgm-exporter, and what would be enough."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.cli import exits
from agent.cli.look import UnknownRegion, catalog_of
from agent.cli.validate import DEFAULT_REGION
from fleet.cost.sizing import FEW_READINGS, UseReport, use_report, uses
from fleet.snapshot.gpus import GpuReading
from model.plain_text import age, plain_lines
from providers.clock import Clock, SystemClock
from providers.dcgm import DcgmError, read_scrape, scrape


@dataclass(frozen=True, slots=True)
class UseRequest:
    """Whom to ask, for how long, and what to say of it."""

    exporters: Sequence[str]
    """Addresses: `http://HOST:9400/metrics`."""
    scrapes: Sequence[Path]
    """Files with answers of exporters, each of the time of its last change."""
    lasts_s: float
    every_s: float
    idle_after_s: float
    region: str


Scrapes = Sequence[tuple[float, Sequence[GpuReading]]]


def advise_gpus(request: UseRequest, clock: Clock | None = None, rest: Callable[[float], None] = time.sleep) -> int:
    """Print what is used and what would be enough; the exit code."""
    try:
        catalog = catalog_of(request.region or DEFAULT_REGION)
        told = [*_from_files(request.scrapes), *_asked(request, clock or SystemClock(), rest)]
        report = use_report(uses(told), catalog, request.idle_after_s)
    except (DcgmError, UnknownRegion, OSError) as error:
        exits.complain(error)
        return exits.ERROR
    sys.stdout.write(plain_lines(_lines(report)) + "\n")
    return exits.OK


def _from_files(paths: Sequence[Path]) -> Iterator[tuple[float, Sequence[GpuReading]]]:
    for path in paths:
        yield path.stat().st_mtime, read_scrape(path.read_bytes(), str(path)).readings


def _asked(
    request: UseRequest, clock: Clock, rest: Callable[[float], None]
) -> Iterator[tuple[float, Sequence[GpuReading]]]:
    """Asks all exporters, again and again until the time is over; one that fails once is told of and asked again."""
    ends_s, failed = clock.monotonic() + request.lasts_s, 0
    while request.exporters:
        for url in request.exporters:
            try:
                yield clock.now(), scrape(url).readings
            except DcgmError as error:
                failed += 1
                if not request.lasts_s or failed > FEW_READINGS * len(request.exporters):
                    raise
                exits.complain(error)
        if clock.monotonic() + request.every_s > ends_s:
            return
        rest(request.every_s)


def _lines(report: UseReport) -> Iterator[str]:
    pods = {(it.last.namespace, it.last.pod) for it in report.uses}
    yield f"{len(pods)} pods hold {len(report.uses)} GPUs and slices; advice keeps a fifth in hand"
    few = sum(it.readings < FEW_READINGS for it in report.uses)
    if few:
        yield f"of {few} there are fewer than {FEW_READINGS} readings, and nothing is concluded"
    for it in report.uses:
        seen = f"{100 * it.active:.0f} % active, {it.most_mib:,.0f} MiB at most, {it.readings} readings"
        yield f"{it.last.namespace}/{it.last.pod}  holds {it.holds} on {it.last.node}: {seen}"
    for one in report.advice:
        pod = f"{one.use.last.namespace}/{one.use.last.pod}"
        yield f"advice: {pod}: {one.words} would be enough: {one.saves_usd:,.0f} USD a month less"
    for it in report.idle:
        yield f"idle: {it.last.namespace}/{it.last.pod} has done nothing with {it.holds} for {age(it.idle_s)}"
