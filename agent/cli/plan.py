"""`muster plan`: two revisions, or a revision against what is in force, with or without a look at the world."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.cli import exits
from agent.cli.validate import (
    WrongCluster,
    cluster_meant,
    is_absent,
    listing_for,
    read_folder,
    region_for,
    shown_folder,
)
from agent.clouds import cloud_provider
from fleet.offerings.declared import catalog_checks
from fleet.plan import Plan, declared_plan, make_plan
from fleet.plan.render import MARKDOWN_MOST, clipped, to_json, to_markdown, to_text
from fleet.policy.checks import unreadable_checks
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.loader import ClusterFiles, InvalidFleet, cluster_digest, clusters_in, load
from model.plain_text import fenced, markdown, plain
from model.problem import Problem
from model.report import text as problem_text
from providers.clock import SystemClock

if TYPE_CHECKING:
    from providers.git.local import LocalRepository
    from providers.kube.objects.reports import SyncReport
    from providers.kube.transport import KubeTransport


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
    """Of the prices; empty = that of the zones at the head."""
    merge: bool = True
    """Whether a head that does not contain the base is merged into it."""
    observe: bool = False
    """Whether the cluster is one on which Muster is not installed."""
    cluster: str = ""
    """The Cluster of the repository; empty = that of the agent on the cluster that is asked, or each that changes."""


class NothingInForce(Exception):
    """No base revision was given and the cluster names none."""


def run_plan(request: PlanRequest, output: str, *, detailed_exitcode: bool) -> int:
    """Make and print the plan; the exit code."""
    from agent.cli.look import UnknownRegion
    from providers.git.errors import SourceError
    from providers.kube.errors import KubeError

    try:
        plans = _plans(request)
    except InvalidFleet as invalid:
        _tell(invalid.problems, output)
        return exits.INVALID
    except (SourceError, KubeError, OSError, NothingInForce, WrongCluster, UnknownRegion) as error:
        exits.complain(error)
        return exits.ERROR
    sys.stdout.write(_rendered(plans, output))
    if any(plan.refusals for plan in plans.values()):
        return exits.REFUSED
    return exits.CHANGES if detailed_exitcode and not all(plan.empty for plan in plans.values()) else exits.OK


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


def _rendered(plans: Mapping[str, Plan], output: str) -> str:
    """One plan as it is, those of several clusters by name."""
    if output == "gitlab":
        counts = [plan.counts() for plan in plans.values()]
        return json.dumps({verb: sum(it[verb] for it in counts) for verb in ("create", "update", "delete")}) + "\n"
    if output == "json":
        told = {name: to_json(plan) for name, plan in plans.items()}
        return json.dumps(told.get("") or {"clusters": told}, indent=2, sort_keys=True) + "\n"
    if not plans:
        return "No file that a cluster reads is changed.\n"
    if output == "markdown":
        room = MARKDOWN_MOST // len(plans) - 200
        shown = [to_markdown(plan, most=room if name else MARKDOWN_MOST) for name, plan in plans.items()]
        heads = [f"## {markdown(name)}\n\n" if name else "" for name in plans]
    else:
        shown = [to_text(plan, colour=exits.coloured(sys.stdout)) + "\n" for plan in plans.values()]
        heads = [f"=== cluster {plain(name)} ===\n" if name else "" for name in plans]
    return "\n".join(head + text for head, text in zip(heads, shown, strict=True))


@dataclass(frozen=True, slots=True)
class _Sides:
    """What is compared: files and names of base and head, and what the cluster says that is asked, if any."""

    base: Mapping[str, bytes]
    base_name: str
    head: Mapping[str, bytes]
    head_name: str
    confirmed: frozenset[str]
    transport: "KubeTransport | None"
    report: "SyncReport | None"


def _plans(request: PlanRequest) -> Mapping[str, Plan]:
    """Returns cluster -> its plan; with an empty name where one cluster was meant, or none is declared."""
    repository, path, cluster = cluster_meant(request.repository, request.path, request.cluster)
    request = replace(request, repository=repository, path=path, cluster=cluster)
    sides = _sides(request)
    clusters = clusters_in(sides.head)
    if request.cluster and not clusters.any:
        raise WrongCluster(f"no file cluster.yaml of {sides.head_name} holds a Cluster: plan without --cluster")
    if request.cluster and sides.report and request.cluster != sides.report.name:
        words = f"the cluster that is asked is {sides.report.name}: {request.cluster} cannot be planned in its world"
        raise WrongCluster(words)
    asked = request.cluster or (sides.report.name if sides.report and clusters.any else "")
    if asked or len(clusters.names) < 2 or clusters.unnamed:
        return {"": _plan(request, sides, asked)}
    return {
        name: _plan(request, sides, name)
        for name in clusters.names
        if cluster_digest(sides.head, name) != cluster_digest(sides.base, name)
    }


def _sides(request: PlanRequest) -> _Sides:
    transport = _cluster(request) if request.world else None
    report = _report(transport, observe=request.observe) if transport else None
    if transport and report is None and not request.base and not request.observe:
        raise NothingInForce("no revision is in force on the cluster yet; name the base with --from")
    base_name = request.base or (report.applied if report else "")
    base = _files(request, base_name) if base_name else {}
    head, head_name = _head(request, base_name)
    confirmed = _repository(request).snapshot(request.head).confirms if request.head else frozenset()
    return _Sides(base, base_name, head, head_name, confirmed, transport, report)


def _plan(request: PlanRequest, sides: _Sides, cluster: str) -> Plan:
    """Returns the plan of one cluster, or of a fleet that is none of several."""
    files, clusters, world = sides.head, clusters_in(sides.head), sides.transport
    made = clusters.files_of(cluster) if clusters.any else None
    own = {it: files[it] for it in made.every} if isinstance(made, ClusterFiles) else files
    name = made.declared.value.key if isinstance(made, ClusterFiles) else cluster
    region = region_for(request.region, own)
    head = load(files, further=(*catalog_checks(listing_for(region, own)), unreadable_checks), cluster=name)
    base, base_name = _base(sides.base, sides.base_name, name) if sides.base_name else (Fleet(), "")
    planned = partial(make_plan, day=sides.report.day if sides.report else ()) if world else declared_plan
    of = sides.report.name if sides.report else ""
    seen = _world(world, region, of, installed=not request.observe) if world else _priced(region)
    head_name, confirmed = sides.head_name, sides.confirmed
    return planned(base, head, seen, base_revision=base_name, head_revision=head_name, confirmed=confirmed)


def _base(files: Mapping[str, bytes], name: str, cluster: str) -> tuple[Fleet, str]:
    """What is compared with, and its name; nothing where the cluster was not there yet, as for its agent then."""
    if is_absent(files, cluster):
        return Fleet(), ""
    return load(files, cluster=cluster), name


def _priced(region: str) -> Snapshot:
    """The prices of a region, where any are known, and nothing else."""
    return Snapshot(now_s=SystemClock().now(), catalog=cloud_provider().catalog(region))


def _head(request: PlanRequest, base: str) -> tuple[Mapping[str, bytes], str]:
    """What would be in force after the change, and how that is called.

    A head that does not contain the base is merged into it: what the base has gained meanwhile is not taken back.
    """
    if not request.head:
        if base and request.merge and not _contains(request, base):
            exits.complain(
                f"the working tree does not contain {base}: what came in between is shown as taken back; "
                "rebase it, or commit and plan with --to HEAD"
            )
        return _files(request, ""), "(working tree)"
    repository = _repository(request)
    if not base or not request.merge or repository.contains(base, request.head):
        return _files(request, request.head), request.head
    merged = repository.merge_result(base, request.head).files
    return _as_shown(request, merged), f"{request.head} merged into {base}"


def _contains(request: PlanRequest, base: str) -> bool:
    """Whether the commit that is checked out, if any, contains the base."""
    from providers.git.errors import SourceError

    try:
        return _repository(request).contains(base)
    except SourceError:
        return True  # a bare repository, or one without a commit: there is nothing to compare


def _files(request: PlanRequest, revision: str) -> Mapping[str, bytes]:
    """The fleet's files at a revision; the working tree for an empty one. Either names them from where one stands."""
    if not revision:
        return read_folder(request.repository / request.path)
    return _as_shown(request, _repository(request).snapshot(revision).files)


def _as_shown(request: PlanRequest, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    shown = "" if _repository(request).bare else shown_folder(request.repository / request.path)
    return {shown + name: content for name, content in files.items()}


def _repository(request: PlanRequest) -> "LocalRepository":
    from providers.git.local import open_local

    return open_local(request.repository / request.path)


def _cluster(request: PlanRequest) -> "KubeTransport":
    from agent.world import open_cluster

    return open_cluster(request.kubeconfig, request.context)


def _report(transport: "KubeTransport", *, observe: bool) -> "SyncReport | None":
    """What the agent tells of the revision in force, and of the last 24 hours; None where no revision is in force.

    Raises `WrongCluster` where Muster is not installed, or where it is and one without it was asked for.
    """
    from providers.kube.errors import NotFound
    from providers.kube.objects import decode_sync
    from providers.kube.objects.paths import FLEET_SYNCS

    try:
        reports = [decode_sync(raw) for page in transport.list_pages(FLEET_SYNCS) for raw in page.items or ()]
    except NotFound:
        if observe:
            return None
        words = "Muster is not installed on this cluster: `--observe` plans what it would do there"
        raise WrongCluster(words) from None
    if observe:
        raise WrongCluster("Muster is installed on this cluster: plan without `--observe`")
    return next((report for report in reports if report.applied), None)


def _world(transport: "KubeTransport", region: str, cluster: str, *, installed: bool) -> Snapshot:
    """The snapshot of the cluster, with the prices of the region."""
    from agent.cli.look import catalog_of
    from agent.world import read_world

    catalog = catalog_of(region)
    return read_world(transport, SystemClock(), catalog, cluster, installed=installed, warn=exits.complain)
