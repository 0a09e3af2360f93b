"""`muster replay`: what a change of the fleet does to waits, GPU-hours and money, on recorded work or a trace."""

import gc
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from agent.cli import exits
from agent.cli.look import catalog_of
from agent.cli.replay_executors import UnusableExecutor, executor_of
from agent.cli.replay_grid import read_grid
from agent.cli.validate import WrongCluster, cluster_meant, is_absent, own_files, read_folder, region_for
from fleet.replay.charts import to_html
from fleet.replay.outcome import ReplayOutcome
from fleet.replay.render import to_json, to_markdown, to_table
from fleet.replay.submissions import SubmittedGang
from fleet.replay.variants import Grid, UnknownVariant, Variant
from fleet.replay.virtual_agent import NeverAtRest
from fleet.replay.virtual_run import ReplayWindow, at_home, replay, unqueued
from model.fleet import Fleet
from model.loader import InvalidFleet, clusters_in, load
from model.report import text as problem_text
from providers.traces import ReadTrace, TraceError, read_trace

RENDERERS: Mapping[str, Callable[[Sequence[ReplayOutcome]], str]] = {
    "table": to_table,
    "markdown": to_markdown,
    "html": to_html,
    "json": lambda outcomes: json.dumps(to_json(outcomes), indent=2, sort_keys=True) + "\n",
}


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to play under which fleets."""

    repository: Path
    base: str
    """A revision, or a folder; empty = only the head is played."""
    head: str
    """A revision, or a folder; empty = the working tree."""
    path: str
    trace: Path
    queue: str
    """All work goes to this queue; empty = to the one it names."""
    window_s: float | None
    """None = from the first arrival until the last gang could have ended."""
    look_s: float
    region: str
    scenarios: Path | None
    jobs: int
    """Processes; 0 = as many as there are processors."""
    executor: str
    """Where cases are played (`executor_of`); empty = in processes of this machine."""
    cluster: str = ""
    """The Cluster of the repository; empty = the only one, or that in whose folder the user stands."""


class UnusableWork(Exception):
    """The work does not fit the fleets; the message says how it would."""


@dataclass(frozen=True, slots=True)
class ReplayCase:
    """One fleet, or one variant of it, to be played in a process of its own."""

    name: str
    files: Mapping[str, bytes]
    work: Sequence[SubmittedGang]
    window: ReplayWindow
    region: str
    variant: Variant
    cluster: str = ""
    """Of several that the files declare."""


UNUSABLE = (UnusableWork, UnusableExecutor, UnknownVariant, NeverAtRest, WrongCluster)


def run_replay(request: ReplayRequest, output: str) -> int:
    """Play, compare and print; the exit code."""
    from agent.cli.look import UnknownRegion
    from providers.git.errors import SourceError

    try:
        outcomes = _outcomes(request)
    except InvalidFleet as invalid:
        sys.stderr.write(problem_text(invalid.problems, colour=False) + "\n")
        return exits.INVALID
    except (SourceError, OSError, TraceError, UnknownRegion, *UNUSABLE) as error:
        exits.complain(error)
        return exits.ERROR
    sys.stdout.write(RENDERERS[output](outcomes))
    return exits.OK


def _outcomes(request: ReplayRequest) -> list[ReplayOutcome]:
    executor = executor_of(request.executor, request.jobs)
    repository, path, cluster = cluster_meant(request.repository, request.path, request.cluster)
    request = replace(request, repository=repository, path=path, cluster=cluster)
    fleets = _fleets(request)
    head = list(fleets.values())[-1]
    if request.cluster and not any(clusters_in(files).any for files in fleets.values()):
        raise UnusableWork(f"no file cluster.yaml there holds a Cluster, so there is none named {request.cluster!r}")
    grid = read_grid(request.scenarios) if request.scenarios else Grid()
    read = read_trace(request.trace)
    for note in read.notes:
        exits.complain(note)
    cases = [
        ReplayCase(
            " / ".join(filter(None, (name, variant.name))), files, work, window, region, variant, request.cluster
        )
        for name, files in fleets.items()
        for region in (region_for(request.region, own_files(files or head, request.cluster)),)
        for work, window in (_work(request, read, fleets, files),)
        for variant in grid.variants()
    ]
    return executor.play(cases, play_case)


def play_case(case: ReplayCase) -> ReplayOutcome:
    """Plays one case; in whatever process."""
    fleet = load(case.files, cluster=case.cluster)
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 100)  # values by the million and no circles among them: a third of the time else
    try:
        return replay(case.name, fleet, catalog_of(case.region), case.work, case.window, case.variant)
    finally:
        gc.set_threshold(*before)


def _work(
    request: ReplayRequest, read: ReadTrace, fleets: Mapping[str, Mapping[str, bytes]], files: Mapping[str, bytes]
) -> tuple[Sequence[SubmittedGang], ReplayWindow]:
    """The work as it arrives at one of the fleets, and the window, which is the same for all of them."""
    asked = [replace(it, queue=request.queue) if request.queue else it for it in read.work]
    loaded = [load(each, cluster=request.cluster) for each in fleets.values()]
    nowhere = set.intersection(*(set(unqueued(it, _homely(it, asked))) for it in loaded))
    if nowhere:
        told = ", ".join(sorted(nowhere)[:5])
        raise UnusableWork(f"queue {told} is declared in none of the fleets; --queue NAME puts all work into one")
    begin_s = asked[0].submitted_s
    whole_s = max(it.submitted_s + it.run_s for it in asked) - begin_s + _GRACE_S
    lasts_s = whole_s if request.window_s is None else request.window_s
    window = ReplayWindow(begin_s, begin_s + lasts_s, request.look_s)
    arriving = _homely(load(files, cluster=request.cluster), [it for it in asked if it.submitted_s < window.until_s])
    if len({it.uid for it in arriving}) < len(arriving):
        raise UnusableWork("work of one name comes from a namespace and from a queue of it; name all namespaces")
    return arriving, window


_GRACE_S = 3600.0
"""For machines to come and gangs to start that would otherwise not end within the window."""


def _homely(fleet: Fleet, work: Sequence[SubmittedGang]) -> list[SubmittedGang]:
    return list(map(partial(at_home, fleet), work))


def _fleets(request: ReplayRequest) -> dict[str, Mapping[str, bytes]]:
    """Name -> the fleet's files, base first; none of a base in which the cluster was not there yet, as in a plan."""
    head = {request.head or "working tree": _files(request, request.head)}
    if not request.base:
        return head
    base = _files(request, request.base)
    if is_absent(base, request.cluster):
        return {f"{request.base} (without {request.cluster})": {}, **head}
    return {request.base: base, **head}


def _files(request: ReplayRequest, named: str) -> Mapping[str, bytes]:
    """The files of a fleet: of a folder, of a revision, or of the working tree for an empty name."""
    from providers.git.local import open_local

    if not named:
        return read_folder(request.repository / request.path)
    folder = Path(named)
    if folder.is_dir():
        return read_folder(folder)
    return dict(open_local(request.repository / request.path).snapshot(named).files)
