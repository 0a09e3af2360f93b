"""`muster plan`: two revisions, or a revision against what is in force, with or without a look at the world."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.cli import exits
from agent.cli.validate import listing_for, read_folder
from agent.clouds import cloud_provider
from fleet.offerings.declared import catalog_checks
from fleet.plan import Plan, declared_plan, make_plan
from fleet.plan.guards import RevisionTally
from fleet.plan.render import MARKDOWN_MOST, clipped, to_json, to_markdown, to_text
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.loader import InvalidFleet, load
from model.plain_text import fenced
from model.problem import Problem
from model.report import text as problem_text
from providers.clock import SystemClock


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What to compare with what."""

    repository: Path
    base: str
    head: str
    path: str
    world: bool
    kubeconfig: Path | None
    context: str | None
    region: str


@dataclass(frozen=True, slots=True)
class PlannedWorld:
    """What a plan is made in."""

    snapshot: Snapshot
    applied: str = ""
    """The revision in force; empty where none is, or none is looked for."""
    day: tuple[RevisionTally, ...] = ()
    """What came of the revisions of the last 24 hours."""


class NothingInForce(Exception):
    """No base revision was given and the cluster names none."""


def run_plan(request: PlanRequest, output: str, *, detailed_exitcode: bool) -> int:
    """Make and print the plan; the exit code."""
    from agent.cli.look import UnknownRegion
    from providers.git.errors import SourceError
    from providers.kube.errors import KubeError

    try:
        plan = _plan(request)
    except InvalidFleet as invalid:
        _tell(invalid.problems, output)
        return exits.INVALID
    except (SourceError, KubeError, OSError, NothingInForce, UnknownRegion) as error:
        exits.complain(error)
        return exits.ERROR
    sys.stdout.write(_rendered(plan, output))
    if plan.refusals:
        return exits.REFUSED
    return exits.CHANGES if detailed_exitcode and not plan.empty else exits.OK


def _tell(problems: Sequence[Problem], output: str) -> None:
    """Write what is wrong with the fleet where the plan would have been, unless programs read it there."""
    if output == "markdown":
        sys.stdout.write(_markdown_of(problem_text(problems)))
        return
    stream = sys.stdout if output == "text" else sys.stderr
    stream.write(problem_text(problems, colour=exits.coloured(stream)) + "\n")


def _markdown_of(told: str) -> str:
    """The problems as a comment, cut at a whole line where they are too long; the last line has their number."""
    *lines, totals = told.split("\n")
    shown: list[str] = []
    room = MARKDOWN_MOST - 5_000
    for line in (clipped(line, 1_000) for line in lines):
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    left = f"\n{len(lines) - len(shown)} more lines are left out here; `muster validate` has all.\n"
    text = fenced("\n".join(shown))
    return f"### The fleet is invalid: {totals}\n\n{text}\n{left if len(shown) < len(lines) else ''}"


def _rendered(plan: Plan, output: str) -> str:
    if output == "json":
        return json.dumps(to_json(plan), indent=2, sort_keys=True) + "\n"
    if output == "gitlab":
        return json.dumps(plan.counts()) + "\n"
    if output == "markdown":
        return to_markdown(plan)
    return to_text(plan, colour=exits.coloured(sys.stdout)) + "\n"


def _plan(request: PlanRequest) -> Plan:
    world = _world(request) if request.world else PlannedWorld(_priced(request.region))
    base_name = request.base or world.applied
    base = load(_files(request, base_name)) if base_name else Fleet()
    files = _files(request, request.head)
    head = load(files, further=catalog_checks(listing_for(request.region, files)))
    names = {"base_revision": base_name, "head_revision": request.head or "(working tree)"}
    if request.world:
        return make_plan(base, head, world.snapshot, **names, day=world.day)
    return declared_plan(base, head, world.snapshot, **names)


def _priced(region: str) -> Snapshot:
    """The prices of a region, where any are known, and nothing else."""
    return Snapshot(now_s=SystemClock().now(), catalog=cloud_provider().catalog(region))


def _files(request: PlanRequest, revision: str) -> Mapping[str, bytes]:
    """The fleet's files at a revision; the working tree for an empty one."""
    if not revision:
        return read_folder(request.repository / request.path)
    from providers.git.local import open_local

    return open_local(request.repository / request.path).snapshot(revision).files


def _world(request: PlanRequest) -> PlannedWorld:
    """The snapshot of the cluster, the revision in force there, and what others did within the day."""
    from agent.cli.look import catalog_of
    from agent.world import open_cluster, read_world
    from providers.kube.objects import decode_sync
    from providers.kube.objects.paths import FLEET_SYNCS

    transport = open_cluster(request.kubeconfig, request.context)
    snapshot = read_world(transport, SystemClock(), catalog_of(request.region), warn=exits.complain)
    reports = [decode_sync(raw) for page in transport.list_pages(FLEET_SYNCS) for raw in page.items or ()]
    report = next((report for report in reports if report.applied), None)
    if report is None and not request.base:
        raise NothingInForce("no revision is in force on the cluster yet; name the base with --from")
    return PlannedWorld(snapshot, report.applied, report.day) if report else PlannedWorld(snapshot)
