"""StatefulSets and their pods as a server and the StatefulSet controller write them, read over HTTP by the adapter."""

from collections.abc import Iterator
from copy import deepcopy

import msgspec
import pytest

from agent.mirror import job_table
from agent.sources import WATCHED
from fleet.snapshot import Job, Pod
from fleet.snapshot.numbered_pods import numbered_pods
from model.index import Index
from providers.kube.config import from_url
from providers.kube.objects.jobs.stateful_set import StatefulSet
from providers.kube.resources import PODS
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from tests.providers.sim.controllers.world import ControllerWorld, Obj, pod_template

QUEUE = {"muster.dev/queue": "t"}
SETS = WATCHED[job_table(StatefulSet())]


@pytest.fixture
def world() -> ControllerWorld:
    made = ControllerWorld()
    made.ready_node("n1")
    return made


@pytest.fixture
def transport(world: ControllerWorld) -> Iterator[KubeTransport]:
    with ApiServer(world.store) as running:
        yield KubeTransport(from_url(running.url))
        running.drop_connections()


def stateful(world: ControllerWorld, replicas: int = 3, **spec: object) -> None:
    template = pod_template(labels={"app": "db", **QUEUE}, restartPolicy="Always")
    template["spec"]["schedulingGates"] = [{"name": "muster.dev/placement"}]
    wanted = {"replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, **spec}
    made: Obj = {"metadata": {"name": "db", "labels": QUEUE}, "spec": {**wanted, "template": template}}
    world.create("StatefulSet", made)
    world.pass_s(5)


def the_set(transport: KubeTransport) -> Job:
    (job,) = (SETS.decode(raw) for page in transport.list_pages(SETS.resource) for raw in page.items or ())
    assert isinstance(job, Job)
    return job


def its_pods(transport: KubeTransport) -> list[Pod]:
    return [WATCHED["pods"].decode(raw) for page in transport.list_pages(PODS) for raw in page.items or ()]


@pytest.mark.parametrize(("policy", "made"), [("OrderedReady", 1), ("Parallel", 3)])
def test_its_pods_wait_and_are_one_gang_of_as_many_as_it_has_replicas(
    world: ControllerWorld, transport: KubeTransport, policy: str, made: int
) -> None:
    stateful(world, podManagementPolicy=policy)
    job, pods = the_set(transport), its_pods(transport)
    assert (job.queue, [(it.name, it.count) for it in job.pod_sets]) == ("t", [("main", 3)])
    assert job.numbering is not None
    assert job.numbering.one_by_one is (policy == "OrderedReady")
    assert {dict(pod.labels)["controller-revision-hash"] for pod in pods} == {job.numbering.revision}
    assert [(pod.held, pod.job_uid) for pod in pods] == [(True, job.ref.uid)] * made
    found = numbered_pods(Index(), {job.ref.uid: job}, {job.ref.uid: tuple(pods)}, {})
    assert [it.count for it in found.jobs[job.ref.uid].pod_sets] == [3]
    assert len(found.job_pods[job.ref.uid]) == made


def test_what_its_template_says_is_what_its_pods_ask_for(world: ControllerWorld, transport: KubeTransport) -> None:
    """Else none of them would be let onto its seat."""
    stateful(world)
    (asked,), (pod, *_) = the_set(transport).pod_sets, its_pods(transport)
    assert asked.unsupported == ()
    assert pod.requests == asked.requests


def test_a_new_template_has_a_revision_of_its_own_once_its_controller_has_seen_it(
    world: ControllerWorld, transport: KubeTransport
) -> None:
    stateful(world)
    before = the_set(transport).numbering
    template = deepcopy(world.the("StatefulSet", "db")["spec"]["template"])
    template["spec"]["containers"][0]["image"] = "other"
    world.change("StatefulSet", "db", template=template)
    unseen = the_set(transport).numbering
    world.pass_s(5)
    after = the_set(transport).numbering
    assert before is not None
    assert unseen is not None
    assert after is not None
    assert unseen.revision == ""
    assert after.revision not in {"", before.revision}


def test_the_number_of_replicas_may_change_and_be_left_out(world: ControllerWorld, transport: KubeTransport) -> None:
    stateful(world)
    world.change("StatefulSet", "db", replicas=0)
    assert [it.count for it in the_set(transport).pod_sets] == [0]
    raw = deepcopy(world.the("StatefulSet", "db"))
    del raw["spec"]["replicas"]
    assert [it.count for it in SETS.decode(msgspec.Raw(msgspec.json.encode(raw))).pod_sets] == [1]
