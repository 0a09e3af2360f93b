"""Which jobs that name no queue are queued, held or left."""

from dataclasses import replace

import pytest

from fleet.quota.without_queue import left_without_queue, with_default_queues
from fleet.snapshot import Job, Snapshot
from model.fleet import Fleet
from model.loader import load
from tests.support.fleets import NOW, gang, job_of

TEAM = """
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {name: h100}
spec: {instanceTypes: [p5.48xlarge]}
---
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {name: t}
spec: {namespaces: [ns], quotas: {h100: {guaranteed: {nvidia.com/gpu: 8}}}, SAYS}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: q}
spec: {team: t, flavors: [h100]}
"""
LOCAL = """
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {name: h100}
spec: {instanceTypes: [p5.48xlarge]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: h100, resources: [{name: cpu, nominalQuota: 8}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: NAME, namespace: ns}
spec: {clusterQueue: cq}
"""
DEFAULTS, HOLDS = "defaultQueue: q", "manageJobsWithoutQueueName: true"


def fleet(text: str) -> Fleet:
    return load({"f.yaml": text.encode()})


def says(words: str) -> Fleet:
    return fleet(TEAM.replace("SAYS", words))


def local(name: str) -> Fleet:
    return fleet(LOCAL.replace("NAME", name))


def nameless(**facts: object) -> Job:
    made = replace(job_of(gang("g")), queue="", may_be_queued=True)
    return replace(made, ref=replace(made.ref, namespace="ns"), **facts)


def seen(fleet: Fleet, job: Job, *, known: bool = False) -> Job:
    gangs = {job.ref.uid: gang("g")} if known else {}
    return with_default_queues(fleet, Snapshot(NOW, jobs={job.ref.uid: job}, gangs=gangs)).jobs[job.ref.uid]


@pytest.mark.parametrize(
    ("fleet", "queue", "managed"),
    [
        (says("weight: 1.0"), "", False),
        (says(DEFAULTS), "q", True),
        (says(HOLDS), "", True),
        (says(f"{DEFAULTS}, {HOLDS}"), "q", True),
        (local("default"), "default", True),
        (local("other"), "", False),
    ],
)
def test_what_becomes_of_a_job_that_waits(fleet: Fleet, queue: str, managed: bool) -> None:
    found = seen(fleet, nameless())
    assert (found.queue, found.managed) == (queue, managed)


@pytest.mark.parametrize("words", [DEFAULTS, HOLDS])
@pytest.mark.parametrize(
    ("facts", "known", "managed"),
    [
        ({"suspended": False, "ready_pods": 0}, False, True),
        ({"suspended": False, "ready_pods": 1}, False, False),
        ({"suspended": False, "ready_pods": 1}, True, True),
        ({"suspended": True, "ready_pods": 1}, False, True),
        ({"may_be_queued": False}, False, False),
    ],
)
def test_what_runs_already_is_left(words: str, facts: dict[str, object], known: bool, managed: bool) -> None:
    assert seen(says(words), nameless(**facts), known=known).managed is managed


def test_another_namespace_is_not_meant() -> None:
    job = nameless()
    elsewhere = replace(job, ref=replace(job.ref, namespace="else"))
    assert not seen(says(DEFAULTS), elsewhere).managed


def test_as_long_as_nothing_changes_the_jobs_are_the_same_objects() -> None:
    job, fleet = nameless(), says(DEFAULTS)
    snapshot = Snapshot(NOW, jobs={job.ref.uid: job})
    first = with_default_queues(fleet, snapshot)
    assert with_default_queues(fleet, replace(snapshot, now_s=NOW + 1, gangs={})).jobs is first.jobs


def test_who_is_left_can_be_asked_about() -> None:
    job = nameless()
    snapshot = Snapshot(NOW, jobs={job.ref.uid: job})
    assert left_without_queue(snapshot, "ns/g") == left_without_queue(snapshot, "g") == [job]
    assert left_without_queue(snapshot, "h") == []
    assert left_without_queue(with_default_queues(says(DEFAULTS), snapshot), "g") == []
