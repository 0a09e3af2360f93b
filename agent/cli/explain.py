"""`muster explain workload`: why a gang waits or runs, its place in the queue, and what would change it."""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from agent.cli import exits
from agent.cli.tables import world
from agent.cli.validate import read_folder, region_for
from agent.clouds import cloud_provider
from agent.explanation import Otherwise, fence_words, find, gang_lines, imagined, way_through
from agent.world import open_cluster
from fleet.quota.without_queue import left_without_queue
from fleet.snapshot import Gang, Job, Snapshot
from fleet.snapshot.ordinary_pods import makers
from model.fleet import Fleet
from model.loader import InvalidFleet, load
from model.plain_text import plain_lines
from model.quantity import format_amount
from model.report import text as problem_text
from providers.kube.errors import KubeError, NotFound
from providers.kube.objects.paths import QUEUES
from providers.kube.transport import KubeTransport


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked beyond why: the fleet's files, and how the gang would be otherwise."""

    otherwise: Otherwise
    fleet: Path | None = None
    region: str = ""
    """Whose machines a what-if may buy; empty = that of the fleet's zones."""


def explain_gang(name: str, question: Question, kubeconfig: Path | None, context: str | None) -> int:
    """Print the explanation; the exit code."""
    try:
        files = read_folder(question.fleet) if question.fleet else {}
        fleet = load(files) if question.fleet else None
        question = replace(question, region=region_for(question.region, files))
        transport = open_cluster(kubeconfig, context)
        snapshot = world(transport)
        gangs = find(snapshot, name)
        if not gangs and (left := left_without_queue(snapshot, name)):
            sys.stdout.write(plain_lines([line for job in left for line in without_queue(job, snapshot)]) + "\n")
            return exits.OK
        if not gangs:
            known = ", ".join(sorted(gang.name for gang in snapshot.gangs.values())[:10]) or "none"
            exits.complain(f"no workload {name!r}; there are: {known}. Of pods in no queue: muster explain pod {name}")
            return exits.ERROR
        for gang in gangs:
            told = [*lines(transport, snapshot, gang, fleet)]
            if fleet is not None:
                told += [*way_through(fleet, snapshot, gang)]
                if question.otherwise:
                    priced = replace(snapshot, catalog=cloud_provider().catalog(question.region))
                    told += imagined(fleet, priced, gang, question.otherwise)
            sys.stdout.write(plain_lines(told) + "\n")
    except InvalidFleet as invalid:
        sys.stderr.write(problem_text(invalid.problems, colour=False) + "\n")
        return exits.INVALID
    except (KubeError, OSError) as error:
        exits.complain(error)
        return exits.ERROR
    return exits.OK


def without_queue(job: Job, snapshot: Snapshot) -> Iterator[str]:
    """What is to be said of a job that is left to itself."""
    asked = Counter[str]()
    for pods in job.pod_sets:
        asked.update({name: amount * pods.count for name, amount in pods.requests.items()})
    takes = ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in sorted(asked.items()))
    yield f"{job.ref.namespace}/{job.ref.name}  ({job.ref.kind}, no queue)"
    yield f"  it asks for {takes or 'nothing'} and counts in no quota: it is left to kube-scheduler"
    yield from _holdings(job, snapshot)
    yield from fence_words(snapshot, job.ref.namespace)
    yield "  remedy: create it with the label muster.dev/queue; defaultQueue of its team sees to all such jobs"


def _holdings(job: Job, snapshot: Snapshot) -> Iterator[str]:
    """What the pods of a job that is left hold, and where; those of jobs that it has made count."""
    held, places = Counter[str](), Counter[str]()
    for node, pods in snapshot.ordinary_pods.items():
        for pod in pods:
            if job.ref.uid in makers(snapshot.jobs, pod.owner_job):
                held.update(pod.requests)
                places[node] += 1
    if places:
        takes = ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in sorted(held.items()))
        where = ", ".join(f"{node} ({count})" for node, count in sorted(places.items()))
        yield f"  holds:    {takes}, on {where}, which its namespace's team pays for"


def lines(transport: KubeTransport, snapshot: Snapshot, gang: Gang, fleet: Fleet | None = None) -> Iterator[str]:
    """The explanation, line by line."""
    yield from gang_lines(snapshot, gang, fleet, _usage(transport, gang))


def _usage(transport: KubeTransport, gang: Gang) -> Iterator[str]:
    try:
        queue = msgspec.json.decode(transport.read(QUEUES, gang.queue))
    except NotFound:
        return
    yield f"  team:     {queue['spec']['team']}"
    for usage in (queue.get("status") or {}).get("usage") or ():
        borrowed = f", team borrows {usage['borrowed']}" if usage["borrowed"] != "0" else ""
        yield (
            f"  quota:    {usage['resource']} of {usage['flavor']}: guaranteed {usage['quota']}, "
            f"queue uses {usage['used']}{borrowed}"
        )
