import pytest

from providers.sim.store import StoreTooManyRequests
from tests.providers.sim.controllers.world import ControllerWorld, Obj, pod_template


@pytest.fixture
def cluster(world: ControllerWorld) -> ControllerWorld:
    world.ready_node("n", cpu="20", pods="40")
    return world


def budget(cluster: ControllerWorld, **spec: object) -> None:
    spec.setdefault("selector", {"matchLabels": {"app": "x"}})
    cluster.create("PodDisruptionBudget", {"metadata": {"name": "b"}, "spec": spec})


def numbers(cluster: ControllerWorld) -> tuple[int, int, int, int]:
    status = cluster.the("PodDisruptionBudget", "b")["status"]
    return tuple(status[k] for k in ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed"))


@pytest.mark.parametrize(
    ("spec", "pods", "expected"),
    [
        ({"minAvailable": 2}, 3, (3, 3, 2, 1)),
        ({"minAvailable": 5}, 3, (3, 3, 5, 0)),
        ({"minAvailable": "50%"}, 3, (3, 3, 2, 1)),
        ({"minAvailable": "100%"}, 3, (3, 3, 3, 0)),
        ({"maxUnavailable": 1}, 3, (3, 3, 2, 1)),
        ({"maxUnavailable": "50%"}, 3, (3, 3, 1, 2)),
        ({"maxUnavailable": 0}, 3, (3, 3, 3, 0)),
        ({"maxUnavailable": 9}, 3, (3, 3, 0, 3)),
        ({"minAvailable": 0}, 0, (0, 0, 0, 0)),
        (
            {"minAvailable": 0, "selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
            2,
            (3, 3, 0, 3),
        ),
    ],
)
def test_counts(cluster: ControllerWorld, spec: Obj, pods: int, expected: tuple[int, ...]) -> None:
    budget(cluster, **spec)
    for i in range(pods):
        cluster.pod(f"p{i}", labels={"app": "x"})
    cluster.pod("stranger", labels={"app": "y"})
    cluster.pass_s(5)
    assert numbers(cluster) == expected
    assert cluster.the("PodDisruptionBudget", "b")["status"]["observedGeneration"] == 1
    wanted = ("True", "SufficientPods") if expected[3] else ("False", "InsufficientPods")
    assert cluster.condition("PodDisruptionBudget", "b", "DisruptionAllowed") == wanted


def test_a_deployment_asks_for_all_its_replica_sets(cluster: ControllerWorld) -> None:
    template = pod_template(labels={"app": "x"}, restartPolicy="Always")
    spec = {"replicas": 8, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    cluster.create("Deployment", {"metadata": {"name": "d"}, "spec": spec})
    cluster.pass_s(5)
    update = pod_template(labels={"app": "x"}, restartPolicy="Always", nodeSelector={"gone": "yes"})
    cluster.change("Deployment", "d", template=update)
    cluster.pass_s(30)
    assert len(cluster.all("ReplicaSet")) == 2
    budget(cluster, maxUnavailable="50%")
    cluster.pass_s(5)
    assert numbers(cluster) == (8, 6, 4, 2)  # two of the old ones went, the new ones fit nowhere


def test_a_job_asks_for_its_parallelism(cluster: ControllerWorld) -> None:
    budget(cluster, maxUnavailable="50%")
    cluster.job("j", completions=30, parallelism=30, template=pod_template(labels={"app": "x"}))
    cluster.pass_s(5)
    assert numbers(cluster) == (30, 20, 15, 5)  # ten of the thirty find no room


def test_eviction_spends_the_budget_and_recovery_gives_it_back(cluster: ControllerWorld) -> None:
    budget(cluster, minAvailable=2)
    template = pod_template(labels={"app": "x"}, notes={"stop-seconds": "5"})
    cluster.job("j", completions=3, parallelism=3, template=template)
    cluster.pass_s(5)
    names = [pod["metadata"]["name"] for pod in cluster.pods_of("j")]
    cluster.store.evict(names[0], "default")
    with pytest.raises(StoreTooManyRequests):
        cluster.store.evict(names[1], "default")  # at once, before anybody counted again
    cluster.settle()
    with pytest.raises(StoreTooManyRequests):
        cluster.store.evict(names[1], "default")
    cluster.pass_s(30)  # the job's back-off, then the replacement is ready
    assert numbers(cluster)[3] == 1
    cluster.store.evict(names[1], "default")


def test_unready_and_ending_pods_are_not_healthy(cluster: ControllerWorld) -> None:
    budget(cluster, minAvailable=1)
    cluster.pod("stopping", labels={"app": "x"}, notes={"stop-seconds": "20"})
    cluster.pod("pending", labels={"app": "x"}, cpu="99")
    cluster.pod("fine", labels={"app": "x"})
    cluster.pass_s(5)
    cluster.delete("Pod", "stopping")
    cluster.pass_s(5)
    assert numbers(cluster) == (3, 1, 1, 0)


def test_a_changed_label_moves_a_pod_out_of_the_budget(cluster: ControllerWorld) -> None:
    budget(cluster, minAvailable=1)
    cluster.pod("p", labels={"app": "x"})
    cluster.pass_s(5)
    assert numbers(cluster)[1] == 1
    cluster.label("Pod", "p", app="y")
    cluster.pass_s(1)
    assert numbers(cluster)[1] == 0
