"""The scheduler with constraints on other pods, ports and volumes: what the recorded rows, one pod each, leave out."""

import pytest

from providers.sim.controllers.filters.volumes import SELECTED_NODE
from tests.providers.sim.controllers.world import ControllerWorld, Obj

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def near(app: str, **term: object) -> Obj:
    return {"podAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}, **term}]}}


def apart(app: str, key: str = ZONE) -> Obj:
    return {"podAntiAffinity": {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}


def spread(app: str, **fields: object) -> list[Obj]:
    selector = {"matchLabels": {"app": app}}
    given = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return [{**given, **fields}]


def ports(*taken: int) -> list[Obj]:
    listed = [{"containerPort": 80, "hostPort": port} for port in taken]
    return [{"name": "c", "image": "i", "ports": listed}]


@pytest.fixture
def zones(world: ControllerWorld) -> ControllerWorld:
    """Two nodes, a and b, each in the zone of its name."""
    for name in ("a", "b"):
        world.node(name, labels={ZONE: name, "kubernetes.io/hostname": name})
    world.pass_s(6)
    return world


def where(world: ControllerWorld, *names: str) -> list[str | None]:
    return [world.the("Pod", name)["spec"].get("nodeName") for name in names]


def message(world: ControllerWorld, name: str) -> str:
    (said,) = [c for c in world.the("Pod", name)["status"]["conditions"] if c["type"] == "PodScheduled"]
    return str(said.get("message"))


class TestOtherPods:
    def test_a_pod_waits_for_company(self, zones: ControllerWorld) -> None:
        zones.pod("web", affinity=near("db"))
        zones.pass_s(2)
        assert "2 node(s) didn't match pod affinity rules" in message(zones, "web")
        zones.pod("db", labels={"app": "db"}, nodeSelector={ZONE: "b"})
        zones.pass_s(2)
        assert where(zones, "db", "web") == ["b", "b"]

    def test_the_first_of_a_series_starts_it(self, zones: ControllerWorld) -> None:
        for i in range(3):
            zones.pod(f"p{i}", labels={"app": "x"}, affinity=near("x"))
        zones.pass_s(2)
        assert len(set(where(zones, "p0", "p1", "p2"))) == 1
        assert None not in where(zones, "p0", "p1", "p2")

    def test_anti_affinity_holds_for_those_that_come_later(self, zones: ControllerWorld) -> None:
        """A plain pod is kept away from where it is not wanted, until the one that does not want it goes."""
        zones.pod("shy", labels={"app": "shy"}, affinity=apart("loud"), nodeSelector={ZONE: "a"})
        zones.pod("shy-too", labels={"app": "shy"}, affinity=apart("loud"), nodeSelector={ZONE: "b"})
        zones.pass_s(2)
        zones.pod("loud", labels={"app": "loud"})
        zones.pod("quiet", labels={"app": "quiet"})
        zones.pass_s(2)
        assert where(zones, "loud") == [None]
        assert where(zones, "quiet") != [None]
        assert "2 node(s) didn't satisfy existing pods anti-affinity rules" in message(zones, "loud")
        zones.delete("Pod", "shy-too", grace_period_s=0)
        zones.pass_s(2)
        assert where(zones, "loud") == ["b"]

    def test_a_relabelled_pod_counts_as_what_it_is_now(self, zones: ControllerWorld) -> None:
        zones.pod("one", labels={"app": "x"})
        zones.pod("two", labels={"app": "x"}, affinity=apart("x"))
        zones.pass_s(2)
        assert set(where(zones, "one", "two")) == {"a", "b"}
        zones.pod("three", labels={"app": "x"}, affinity=apart("x"))
        zones.pass_s(2)
        assert where(zones, "three") == [None]
        zones.label("Pod", "one", app="y")
        zones.pass_s(2)
        assert where(zones, "three") == where(zones, "one")

    def test_a_namespace_comes_to_be_meant(self, zones: ControllerWorld) -> None:
        zones.pod("db", labels={"app": "db"}, nodeSelector={ZONE: "b"})
        zones.pod("web", affinity=near("db", namespaceSelector={"matchLabels": {"team": "a"}}))
        zones.pass_s(2)
        assert where(zones, "web") == [None]
        zones.label("Namespace", "default", team="a")
        zones.pass_s(2)
        assert where(zones, "web") == ["b"]

    def test_what_is_over_keeps_nobody_company(self, zones: ControllerWorld) -> None:
        zones.pod("db", labels={"app": "db"}, notes={"run-seconds": "10"}, nodeSelector={ZONE: "b"})
        zones.pass_s(20)
        assert zones.the("Pod", "db")["status"]["phase"] == "Succeeded"
        zones.pod("web", affinity=near("db"))
        zones.pass_s(2)
        assert where(zones, "web") == [None]


class TestSpread:
    def test_evenly_and_then_not_at_all(self, zones: ControllerWorld) -> None:
        for i in range(4):
            zones.pod(f"p{i}", labels={"app": "x"}, topologySpreadConstraints=spread("x"))
        zones.pass_s(2)
        assert sorted(str(w) for w in where(zones, "p0", "p1", "p2", "p3")) == ["a", "a", "b", "b"]
        zones.change("Node", "b", unschedulable=True)
        zones.pod("p4", labels={"app": "x"}, topologySpreadConstraints=spread("x"))
        zones.pod("p5", labels={"app": "x"}, topologySpreadConstraints=spread("x"))
        zones.pass_s(2)
        assert sorted(str(w) for w in where(zones, "p4", "p5")) == ["None", "a"]  # b still counts as a domain

    def test_a_domain_that_goes_counts_no_more(self, zones: ControllerWorld) -> None:
        for i in range(2):
            constraints = spread("x", nodeTaintsPolicy="Honor")
            zones.pod(f"p{i}", labels={"app": "x"}, topologySpreadConstraints=constraints, nodeSelector={})
        zones.pass_s(2)
        zones.change("Node", "b", unschedulable=True)
        zones.pod("p2", labels={"app": "x"}, topologySpreadConstraints=spread("x", nodeTaintsPolicy="Honor"))
        zones.pod("p3", labels={"app": "x"}, topologySpreadConstraints=spread("x", nodeTaintsPolicy="Honor"))
        zones.pass_s(2)
        assert where(zones, "p2", "p3") == ["a", "a"]

    def test_a_preference_is_no_constraint(self, zones: ControllerWorld) -> None:
        constraints = spread("x", whenUnsatisfiable="ScheduleAnyway", topologyKey="absent")
        zones.pod("p", labels={"app": "x"}, topologySpreadConstraints=constraints)
        zones.pass_s(2)
        assert where(zones, "p") != [None]

    def test_fewer_domains_than_asked_for_count_as_an_empty_one(self, zones: ControllerWorld) -> None:
        for i in range(3):
            zones.pod(f"p{i}", labels={"app": "x"}, topologySpreadConstraints=spread("x", minDomains=3))
        zones.pass_s(2)
        assert sorted(str(w) for w in where(zones, "p0", "p1", "p2")) == ["None", "a", "b"]
        zones.ready_node("c", labels={ZONE: "c"})
        assert None not in where(zones, "p0", "p1", "p2")


class TestPorts:
    def test_one_pod_a_port_and_node(self, zones: ControllerWorld) -> None:
        for i in range(3):
            zones.pod(f"p{i}", containers=ports(8080))
        zones.pass_s(2)
        assert sorted(str(w) for w in where(zones, "p0", "p1", "p2")) == ["None", "a", "b"]
        assert "2 node(s) didn't have free ports for the requested pod ports" in message(zones, "p2")
        zones.delete("Pod", "p0", grace_period_s=0)
        zones.pass_s(2)
        assert None not in where(zones, "p1", "p2")

    def test_of_two_that_hold_one_port_the_first_to_go_frees_it(self, zones: ControllerWorld) -> None:
        """As recorded: kube-scheduler keeps a set of ports a node, and no count."""
        for name in ("one", "two"):
            zones.pod(name, containers=ports(8080), nodeName="a", nodeSelector={})
        zones.pod("next", containers=ports(8080), nodeSelector={ZONE: "a"})
        zones.settle()
        assert where(zones, "next") == [None]
        zones.delete("Pod", "one", grace_period_s=0)
        zones.settle()
        assert where(zones, "next") == ["a"]

    def test_on_the_host_network_every_port_is_the_hosts(self, zones: ControllerWorld) -> None:
        containers = [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]
        for i in range(3):
            zones.pod(f"p{i}", containers=containers, hostNetwork=True)
        zones.pass_s(2)
        assert where(zones, "p0", "p1", "p2").count(None) == 1


def storage_class(world: ControllerWorld, name: str, provisioner: str, mode: str, **fields: object) -> None:
    metadata = {"name": name}
    world.create(
        "StorageClass", {"metadata": metadata, "provisioner": provisioner, "volumeBindingMode": mode, **fields}
    )


def claim(world: ControllerWorld, name: str, of: str, *, mode: str = "ReadWriteOnce") -> None:
    requests = {"requests": {"storage": "5Gi"}}
    spec = {"accessModes": [mode], "storageClassName": of, "resources": requests}
    world.create("PersistentVolumeClaim", {"metadata": {"name": name}, "spec": spec})


def volume(world: ControllerWorld, name: str, of: str, zone: str) -> None:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of,
        "csi": {"driver": "d.test", "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    world.create("PersistentVolume", {"metadata": {"name": name}, "spec": spec})


def uses(*claims: str) -> list[Obj]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]


class TestVolumes:
    @pytest.mark.parametrize(
        ("allowed", "goes"),
        [
            ([], "a"),
            ([{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}], "b"),
            ([{}], None),  # an empty term selects no node, an empty list all of them
            ([{"matchLabelExpressions": []}], None),
            ([{}, {"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}], "b"),
            ([{"matchLabelExpressions": [{"key": "absent", "values": ["b"]}]}], None),
        ],
    )
    def test_where_a_class_makes_volumes(self, zones: ControllerWorld, allowed: list[Obj], goes: str | None) -> None:
        storage_class(zones, "gp3", "ebs.csi.aws.com", "WaitForFirstConsumer", allowedTopologies=allowed)
        claim(zones, "data", "gp3")
        zones.pod("p", volumes=uses("data"))
        zones.pass_s(5)
        assert where(zones, "p") == [goes]

    @pytest.mark.parametrize(("policy", "left"), [("Delete", 0), ("Retain", 1)])
    def test_what_becomes_of_a_volume_without_its_claim(self, zones: ControllerWorld, policy: str, left: int) -> None:
        storage_class(zones, "gp3", "ebs.csi.aws.com", "Immediate", reclaimPolicy=policy)
        claim(zones, "data", "gp3")
        zones.pass_s(5)
        assert zones.the("PersistentVolumeClaim", "data")["status"]["phase"] == "Bound"
        zones.delete("PersistentVolumeClaim", "data")
        zones.pass_s(5)
        assert [held["status"]["phase"] for held in zones.all("PersistentVolume")] == ["Released"] * left

    def test_a_claim_that_names_no_class_gets_the_default(self, zones: ControllerWorld) -> None:
        requests = {"requests": {"storage": "5Gi"}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": requests}
        zones.create("PersistentVolumeClaim", {"metadata": {"name": "data"}, "spec": spec})
        zones.create("PersistentVolumeClaim", {"metadata": {"name": "none"}, "spec": {**spec, "storageClassName": ""}})
        zones.pass_s(5)
        assert "storageClassName" not in zones.the("PersistentVolumeClaim", "data")["spec"]
        marks = {"storageclass.kubernetes.io/is-default-class": "true"}
        kind = {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "Immediate"}
        zones.create("StorageClass", {"metadata": {"name": "gp3", "annotations": marks}, **kind})
        zones.pass_s(5)
        assert zones.the("PersistentVolumeClaim", "data")["spec"]["storageClassName"] == "gp3"
        assert zones.the("PersistentVolumeClaim", "data")["status"]["phase"] == "Bound"
        assert zones.the("PersistentVolumeClaim", "none")["status"]["phase"] == "Pending"

    def test_a_node_that_goes_before_its_volume_is_made_is_no_longer_chosen(self, zones: ControllerWorld) -> None:
        storage_class(zones, "gp3", "ebs.csi.aws.com", "WaitForFirstConsumer")
        claim(zones, "data", "gp3")
        held = zones.the("PersistentVolumeClaim", "data")
        metadata = {**held["metadata"], "annotations": {SELECTED_NODE: "gone"}}
        resource = zones.store.resource("PersistentVolumeClaim")
        zones.store.update(resource, {**held, "metadata": metadata}, namespace="default")
        zones.pod("p", volumes=uses("data"))
        zones.pass_s(5)
        assert where(zones, "p") == ["a"]

    def test_a_volume_is_made_where_the_pod_goes(self, zones: ControllerWorld) -> None:
        storage_class(zones, "gp3", "ebs.csi.aws.com", "WaitForFirstConsumer")
        claim(zones, "data", "gp3")
        zones.pod("p", volumes=uses("data"), nodeSelector={ZONE: "b"})
        zones.pass_s(5)
        held = zones.the("PersistentVolumeClaim", "data")
        assert (where(zones, "p"), held["status"]["phase"]) == (["b"], "Bound")
        assert held["metadata"]["annotations"][SELECTED_NODE] == "b"
        zones.delete("Pod", "p", grace_period_s=0)
        zones.pod("next", volumes=uses("data"))  # the volume is in b for good
        zones.pod("never", volumes=uses("data"), nodeSelector={ZONE: "a"})
        zones.pass_s(5)
        assert where(zones, "next", "never") == ["b", None]
        assert "1 node(s) didn't match PersistentVolume's node affinity" in message(zones, "never")

    def test_a_volume_that_is_there_is_taken_once(self, zones: ControllerWorld) -> None:
        storage_class(zones, "local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer")
        volume(zones, "v", "local", "b")
        for name in ("one", "two"):
            claim(zones, name, "local")
            zones.pod(name, volumes=uses(name))
        zones.pass_s(5)
        assert where(zones, "one", "two") == ["b", None]
        assert zones.the("PersistentVolume", "v")["status"]["phase"] == "Bound"
        assert "didn't find available persistent volumes to bind" in message(zones, "two")
        volume(zones, "w", "local", "a")
        zones.pass_s(5)
        assert where(zones, "two") == ["a"]

    def test_a_claim_that_is_made_later(self, zones: ControllerWorld) -> None:
        zones.pod("p", volumes=uses("data"))
        zones.pass_s(2)
        assert message(zones, "p") == '0/2 nodes are available: persistentvolumeclaim "data" not found. not found'
        storage_class(zones, "gp3", "ebs.csi.aws.com", "Immediate")
        claim(zones, "data", "gp3")
        zones.pass_s(5)
        assert where(zones, "p") != [None]

    def test_the_place_is_held_while_the_volume_is_made(self, zones: ControllerWorld) -> None:
        """Nobody plays this provisioner; whoever comes meanwhile finds the place taken, until the pod goes."""
        storage_class(zones, "slow", "slow.test", "WaitForFirstConsumer")
        claim(zones, "data", "slow")
        zones.pod("p", cpu="4", volumes=uses("data"), nodeSelector={ZONE: "b"})
        zones.pass_s(2)
        zones.pod("other", cpu="1", nodeSelector={ZONE: "b"})
        zones.pass_s(2)
        assert where(zones, "p", "other") == [None, None]
        assert zones.the("PersistentVolumeClaim", "data")["metadata"]["annotations"] == {SELECTED_NODE: "b"}
        zones.delete("Pod", "p")
        zones.pass_s(2)
        assert where(zones, "other") == ["b"]

    def test_a_claim_made_for_the_pod_alone(self, zones: ControllerWorld) -> None:
        storage_class(zones, "gp3", "ebs.csi.aws.com", "WaitForFirstConsumer")
        template = {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3"}}
        scratch = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
        zones.pod("p", volumes=scratch)
        zones.pass_s(5)
        assert where(zones, "p") != [None]
        assert zones.the("PersistentVolumeClaim", "p-scratch")["status"]["phase"] == "Bound"
        zones.delete("Pod", "p", grace_period_s=0)
        zones.settle()
        assert zones.get("PersistentVolumeClaim", "p-scratch") is None

    def test_a_claim_for_one_pod_only(self, zones: ControllerWorld) -> None:
        storage_class(zones, "gp3", "ebs.csi.aws.com", "Immediate")
        claim(zones, "data", "gp3", mode="ReadWriteOncePod")
        zones.pod("p", volumes=uses("data"))
        zones.pass_s(5)
        zones.pod("next", volumes=uses("data"))
        zones.pass_s(5)
        assert where(zones, "next") == [None]
        zones.delete("Pod", "p", grace_period_s=0)
        zones.pass_s(5)
        assert where(zones, "next") != [None]

    def test_no_more_volumes_than_a_node_can_attach(self, zones: ControllerWorld) -> None:
        storage_class(zones, "gp3", "ebs.csi.aws.com", "Immediate")
        for node in ("a", "b"):
            driver = {"name": "ebs.csi.aws.com", "nodeID": node, "allocatable": {"count": 1}}
            zones.create("CSINode", {"metadata": {"name": node}, "spec": {"drivers": [driver]}})
        for name in ("one", "two", "three"):
            claim(zones, name, "gp3")
            zones.pod(name, volumes=uses(name))
        zones.pass_s(5)
        assert sorted(str(w) for w in where(zones, "one", "two", "three")) == ["None", "a", "b"]
        assert "2 node(s) exceed max volume count" in message(zones, "three")
        zones.pod("shares", volumes=uses("one"))  # a volume that is attached already is not counted twice
        zones.pass_s(5)
        assert where(zones, "shares") == where(zones, "one")
