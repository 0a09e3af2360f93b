"""`muster gpus advise`: what pods use of the GPUs and slices they hold, by dcgm-exporter, and what would be enough."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.answers.gpus import sizing_lines, use_lines
from agent.cli import exits
from agent.cli.explain import NotAnswered, ask_agent
from agent.cli.look import UnknownRegion, catalog_of
from agent.cli.validate import DEFAULT_REGION
from agent.gang_answer import GpusAnswer
from fleet.cost.sizing import FEW_READINGS, UseReport, gpu_prices, slice_sizes, use_report, uses
from fleet.snapshot import Catalog
from fleet.snapshot.gpus import FRESH_S, GpuReading, MeasuredUse
from model.plain_text import plain_lines
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
    agent: str = ""
    """Address of the agent's page, which keeps readings; asked where no exporter and no file is named."""
    kubeconfig: Path | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class SizingProposal:
    """The fleet in which layouts are to be such that pods can have what would be enough for them."""

    folder: Path
    pool: str
    cluster: str
    config: Path
    pull_request: bool


Scrapes = Sequence[tuple[float, Sequence[GpuReading]]]


def advise_gpus(
    request: UseRequest,
    clock: Clock | None = None,
    rest: Callable[[float], None] = time.sleep,
    proposal: SizingProposal | None = None,
) -> int:
    """Print what is used and what would be enough, and with a proposal the layouts for that; the exit code."""
    try:
        catalog = catalog_of(request.region or DEFAULT_REGION)
        if request.exporters or request.scrapes:
            told = [*_from_files(request.scrapes), *_asked(request, clock or SystemClock(), rest)]
            found = uses(told)
        else:
            found = _kept(request)
        report = use_report(found, catalog, request.idle_after_s)
    except (DcgmError, NotAnswered, UnknownRegion, OSError) as error:
        exits.complain(error)
        return exits.ERROR
    sys.stdout.write(plain_lines(use_lines(report)) + "\n")
    return exits.OK if proposal is None else _propose(request, proposal, report, catalog)


def _kept(request: UseRequest) -> tuple[MeasuredUse, ...]:
    """What the agent has kept of pods that hold something now. Errors: `NotAnswered`."""
    body = ask_agent(request.agent, "/api/gpus", request.kubeconfig, request.context)
    try:
        answer = msgspec.json.decode(body, type=GpusAnswer)
    except msgspec.MsgspecError as error:
        raise NotAnswered(f"{request.agent} answers what this version does not read: {error}") from error
    return tuple(it for it in answer.uses if answer.at_s - it.until_s <= FRESH_S)


def _propose(request: UseRequest, proposal: SizingProposal, report: UseReport, catalog: Catalog) -> int:
    """Layouts that give each pod what would be enough for it: as `muster layouts advise` does it."""
    from agent.cli.layouts import AdviceRequest, advise_layouts

    sizes = slice_sizes(report.uses, gpu_prices(catalog))
    if not sizes.enough:
        exits.complain("no pod holds a slice, or a GPU of which a slice would be enough: there is nothing to cut")
        return exits.REFUSED
    notes = [
        "What pods use of GPUs, by dcgm-exporter, and what would be enough with a fifth in hand:",
        *sizing_lines(report),
    ]
    return advise_layouts(
        AdviceRequest(
            folder=proposal.folder,
            pool=proposal.pool,
            demand=None,
            trace=None,
            window="",
            cover=1.0,
            look_s=60.0,
            region=request.region,
            cluster=proposal.cluster,
            config=proposal.config,
            pull_request=proposal.pull_request,
            sizes=sizes,
            notes=notes,
        )
    )


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
