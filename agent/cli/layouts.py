"""`muster layouts advise`: the MIG layouts that the demand asks for, as a change of the fleet, with waits replayed."""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from agent.cli import exits
from agent.cli.look import UnknownRegion, catalog_of
from agent.cli.options import duration_s
from agent.cli.replay import UNUSABLE, ReplayCase, UnusableWork, play_case
from agent.cli.validate import read_folder, region_for
from agent.config import InvalidConfiguration, Settings, load_settings
from fleet.advice.layouts import (
    CutKind,
    LayoutAdvice,
    NothingToCut,
    SlicesAsked,
    advised,
    as_declared,
    asked_by,
    asked_of,
    cut_kinds,
)
from fleet.advice.layouts_text import JudgedLayouts, advice_lines, improves
from fleet.cost.sizing import SliceSizes
from fleet.optimize.cutting import StockCut, Uncuttable
from fleet.optimize.solver import SolverFailed
from fleet.replay.outcome import ReplayOutcome
from fleet.replay.submissions import SubmittedGang
from fleet.replay.variants import Variant
from fleet.replay.virtual_run import ReplayWindow, at_home, unqueued
from fleet.review.images import layouts_branch
from model.fleet import Fleet
from model.loader import InvalidFleet, NotRewritable, PoolLayouts, load, unreadable_in, with_layouts
from model.plain_text import plain, plain_block, plain_lines
from model.report import text as problem_text
from providers.traces import TraceError, read_trace

if TYPE_CHECKING:
    from agent.review.world import ProposedCommits
    from providers.forge.port import Forge


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """What to advise on, for which demand."""

    folder: Path
    """The fleet's files."""
    pool: str
    """Only this one; empty = all that cut their GPUs."""
    demand: Path | None
    """Slices that have to be there at once."""
    trace: Path | None
    """Work that was submitted; where this and `demand` are None, the record that the settings name."""
    window: str
    """The last of it that counts (`14d`); empty = all."""
    cover: float
    """Part of the time (of 1) whose demand is to be met without anybody waiting."""
    look_s: float
    region: str
    cluster: str
    config: Path
    pull_request: bool
    sizes: SliceSizes | None = None
    """Slices that pods hold, and those that would be enough, which have to be there at once; from readings."""
    notes: Sequence[str] = ()
    """What a pull request says of where these come from."""


_COUNTS = TypeAdapter(dict[str, Annotated[int, Field(ge=0, le=1_000_000)]])
_GRACE_S = 3600.0
"""As in a replay: for machines to come and gangs to start."""


def advise_layouts(request: AdviceRequest) -> int:
    """Print the advice and what it would change; open a pull request where that is asked for. Returns the exit code."""
    from providers.forge.port import ForgeError
    from providers.git.errors import SourceError

    try:
        return _advise(request)
    except InvalidFleet as invalid:
        sys.stderr.write(problem_text(invalid.problems, colour=False) + "\n")
        return exits.INVALID
    except (NothingToCut, Uncuttable, SolverFailed, NotRewritable, InvalidConfiguration) as error:
        exits.complain(error)
    except (TraceError, UnknownRegion, SourceError, ForgeError, OSError, ValueError, *UNUSABLE) as error:
        exits.complain(error)
    return exits.ERROR


def _advise(request: AdviceRequest) -> int:
    files = read_folder(request.folder)
    fleet, region = load(files, cluster=request.cluster), region_for(request.region, files)
    catalog = catalog_of(region)
    kinds = cut_kinds(fleet, catalog, request.pool)
    work = None if request.demand or request.sizes is not None else _arrived(request, fleet)
    asked = _asked(request, fleet, kinds, work) if work else _said(request, kinds)
    advice = advised(fleet, kinds, asked)
    wanted = list(_wanted(fleet, advice))
    changed = _changed(files, wanted, request.cluster)
    outcomes = _replayed(files, changed, work, region, request.cluster) if work else None
    before = _of_these(kinds, request.sizes.held) if request.sizes is not None else asked
    judged = JudgedLayouts(advice, _declared(fleet, kinds, before), outcomes)
    sys.stdout.write(plain_lines(advice_lines(judged)) + "\n")
    sys.stdout.write(plain_block("".join(_diff(files, changed))))
    return _propose(request, judged, wanted) if request.pull_request else exits.OK


def _declared(fleet: Fleet, kinds: Sequence[CutKind], asked: SlicesAsked) -> StockCut | str:
    """What the same takes with the layouts that there are; in words where they cannot give it."""
    try:
        return as_declared(fleet, kinds, asked)
    except Uncuttable as error:
        return str(error)


# -- the demand -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Arrived:
    """Work that was submitted in a window, and the window."""

    work: Sequence[SubmittedGang]
    window: ReplayWindow


def _arrived(request: AdviceRequest, fleet: Fleet) -> _Arrived:
    read = read_trace(request.trace or _record(load_settings(request.config)))
    for note in read.notes:
        exits.complain(note)
    work = list(map(partial(at_home, fleet), read.work))
    if nowhere := unqueued(fleet, work):
        raise UnusableWork(f"queue {', '.join(nowhere[:5])} is declared in the fleet nowhere")
    until_s = max(it.submitted_s for it in work)
    begin_s = until_s - duration_s(request.window) if request.window else 0.0
    kept = [it for it in work if it.submitted_s >= begin_s]
    ends_s = max(it.submitted_s + it.run_s for it in kept) + _GRACE_S
    return _Arrived(kept, ReplayWindow(kept[0].submitted_s, ends_s, request.look_s))


def _record(settings: Settings) -> Path:
    if settings.record is None:
        raise InvalidConfiguration("the settings name no `record`: give --recorded, --trace or --demand")
    return settings.record.absolute()


def _asked(request: AdviceRequest, fleet: Fleet, kinds: Sequence[CutKind], arrived: _Arrived) -> SlicesAsked:
    """The demand until the last gang came: of what is over then only the end is known."""
    until_s = max(arrived.work[-1].submitted_s, arrived.window.begin_s + _GRACE_S)
    return asked_by(fleet, kinds, arrived.work, until_s, request.cover)


def _of_these(kinds: Sequence[CutKind], slices: Mapping[str, int]) -> SlicesAsked:
    """So many slices, without those that none of the machines can be cut into: they are other GPUs'."""
    can_be = {name for kind in kinds for name in kind.model.profiles}
    return asked_of(kinds, {name: count for name, count in slices.items() if name in can_be})


def _said(request: AdviceRequest, kinds: Sequence[CutKind]) -> SlicesAsked:
    if request.sizes is not None:
        return _of_these(kinds, request.sizes.enough)
    path = request.demand or Path()
    try:
        text = path.read_bytes()
        if refused := unreadable_in(str(path), text):
            raise TraceError("\n".join(refused))
        return asked_of(kinds, _COUNTS.validate_python(yaml.safe_load(text.decode())))
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        words = "a file of slices is a mapping of profiles to how many: `{1g.10gb: 40, 3g.40gb: 8}`"
        raise TraceError(f"{path}: {words}: {error}") from error


# -- the change -------------------------------------------------------------------------------------------------------


def _wanted(fleet: Fleet, advice: LayoutAdvice) -> Iterator[PoolLayouts]:
    """What is to be written, pool by pool; a layout that two pools share is written with the first."""
    written: set[str] = set()
    for pool in sorted({it.pool for it in advice.cuts}):
        cuts = advice.of_pool(pool)
        layouts = {it.layout.name: it for it in cuts}
        new = tuple(it.layout for name, it in layouts.items() if it.new and name not in written)
        written |= layouts.keys()
        fixed = fleet.node_pools[pool].spec.replicas is not None
        names = advice.names(fleet, fleet.node_pools[pool])
        yield PoolLayouts(pool, names, sum(it.count for it in cuts) if fixed else None, new)


def _changed(files: Mapping[str, bytes], wanted: Sequence[PoolLayouts], cluster: str) -> Mapping[str, bytes]:
    """The files with the change. Raises `NotRewritable`."""
    changed = dict(files)
    for each in wanted:
        path, content = with_layouts(changed, each, cluster=cluster)
        changed[path] = content
    return changed


def _diff(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Iterator[str]:
    """The change as git would show it, so that `git apply` takes it."""
    for path in sorted(after):
        if before[path] != after[path]:
            old, new = (it[path].decode().splitlines(keepends=True) for it in (before, after))
            yield f"diff --git a/{path} b/{path}\n"
            yield from unified_diff(old, new, f"a/{path}", f"b/{path}")


def _replayed(
    before: Mapping[str, bytes], after: Mapping[str, bytes], arrived: _Arrived, region: str, cluster: str
) -> tuple[ReplayOutcome, ReplayOutcome]:
    cases = (
        ReplayCase(name, files, arrived.work, arrived.window, region, Variant(), cluster)
        for name, files in (("before", before), ("after", after))
    )
    first, second = map(play_case, cases)
    return first, second


# -- the request ------------------------------------------------------------------------------------------------------


def _propose(request: AdviceRequest, judged: JudgedLayouts, wanted: Sequence[PoolLayouts]) -> int:
    """Open a pull request that changes one pool; it is refused where the change is none for the better."""
    from agent.review.opening import review_ports
    from providers.clock import SystemClock

    if against := improves(judged):
        exits.complain(f"no pull request: {against}")
        return exits.REFUSED
    if len(wanted) != 1:
        exits.complain("no pull request: a request changes one node pool; name it with --pool")
        return exits.ERROR
    settings = load_settings(request.config)
    ports = review_ports(settings, SystemClock())
    if ports is None:
        raise InvalidConfiguration(f"{request.config}: `review` is not set, so there is no forge to ask")
    try:
        with ports.open_forge() as forge:
            place = ProposalPlace(ports.commits, settings.source.ref.branch, settings.cluster)
            told = propose_layouts(forge, place, wanted[0], judged, request.notes)
    finally:
        ports.commits.close()
    sys.stdout.write(plain(told) + "\n")
    return exits.OK


@dataclass(frozen=True, slots=True)
class ProposalPlace:
    """Where a change is proposed: a branch of the fleet's repository, for one of its clusters."""

    commits: "ProposedCommits"
    branch: str
    cluster: str


def propose_layouts(
    forge: "Forge", place: ProposalPlace, wanted: PoolLayouts, judged: JudgedLayouts, notes: Sequence[str] = ()
) -> str:
    """Open a request with the layouts of a pool; returns what there is now. Raises ForgeError, SourceError and such.

    Its branch is named after what it says: the same advice is the same request, and one that was closed stays closed.
    """
    from providers.forge.port import ProposedChange

    said = json.dumps([wanted.names, wanted.replicas], sort_keys=True)
    branch = layouts_branch(wanted.pool, hashlib.sha256(said.encode()).hexdigest())
    if known := forge.requests_from(branch):
        return f"pull request {known[-1].number} proposes this already: {known[-1].state.value}"
    base = place.commits.fetch_ref(f"refs/heads/{place.branch}")
    files = place.commits.merged_files(base, base).files
    path, content = with_layouts(files, wanted, cluster=place.cluster)
    if content == files[path]:
        return "the branch has these layouts already"
    title = f"Node pool {wanted.pool}: MIG layouts for the demand"
    words = "```\n" + plain_lines([*notes, *advice_lines(judged)]) + "\n```\n"
    change = ProposedChange(branch, place.branch, base, path, content, title, words)
    return f"pull request {forge.propose(change)} proposes it"
