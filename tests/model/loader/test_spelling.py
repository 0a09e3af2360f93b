"""Names of resources and labels that are next to ones that everybody knows."""

from collections.abc import Callable

import pytest

from model.problem import Code, Problem
from tests.model.loader.writing import declare

Load = Callable[..., list[Problem]]


def quota(resource: str) -> tuple[str, str]:
    return declare("NodePool", "p"), declare("Team", "t", f"{{quotas: {{p: {{guaranteed: {{{resource}: 1}}}}}}}}")


SLIPS = [
    ("nvidia.com/gpus", "nvidia.com/gpu"),
    ("nvdia.com/gpu", "nvidia.com/gpu"),
    ("nvidia.com/mig-1g.10bg", "nvidia.com/mig-1g.10gb"),
    ("nvidia.com/mig-1g.11gb", "nvidia.com/mig-1g."),
    ("cpus", "cpu"),
    ("Memory", "memory"),
    ("gpu", "amd.com/gpu"),
    ("vpc.amazonaws.com/efas", "vpc.amazonaws.com/efa"),
]


@pytest.mark.parametrize(("name", "meant"), SLIPS)
def test_resources_that_do_not_exist(problems: Load, name: str, meant: str) -> None:
    found = [problem for problem in problems(*quota(name)) if problem.code is Code.UNKNOWN_NAME]
    assert [problem.severity for problem in found] == ["error"]
    assert found[0].path.startswith("spec.quotas.p.guaranteed")
    assert f"did you mean '{meant}" in found[0].hint
    policy = declare("FleetPolicy", "f", f"{{allowUnknown: [{name}]}}")
    assert not [problem for problem in problems(*quota(name), policy) if problem.code is Code.UNKNOWN_NAME]


@pytest.mark.parametrize(
    "name",
    ["cpu", "pods", "hugepages-2Mi", "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb.me",
     "amd.com/gpu", "example.com/fpga", "example.com/gpu", "nvidia.com/GA102", "aws.amazon.com/neuroncore",
     "rdma/hca_shared_devices_a"],
)  # fmt: skip
def test_resources_that_may_be(problems: Load, name: str) -> None:
    assert not [problem for problem in problems(*quota(name)) if problem.code is Code.UNKNOWN_NAME]


PLACES = [
    (
        declare("NodePool", "p", "{limits: {resources: {nvidia.com/gpus: 8}}}"),
        'spec.limits.resources["nvidia.com/gpus"]',
    ),
    (
        declare("NodeOverlay", "o", "{requirements: [], capacity: {nvidia.com/gpus: 8}}"),
        'spec.capacity["nvidia.com/gpus"]',
    ),
    (
        declare(
            "FleetPolicy",
            "f",
            "{admissionFairSharing: {usageHalfLifeTime: 1h, resourceWeights: {nvidia.com/gpus: 1.0}}}",
        ),
        'spec.admissionFairSharing.resourceWeights["nvidia.com/gpus"]',
    ),
    (
        """apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: c}
spec:
  resourceGroups:
    - coveredResources: [nvidia.com/gpus]
      flavors: [{name: p, resources: [{name: nvidia.com/gpus, nominalQuota: 1}]}]
---
""" + declare("NodePool", "p"),
        "spec.resourceGroups[0].flavors[0].resources[0].name",
    ),
    (
        declare("NodePool", "p", "{requirements: [{key: karpenter.k8s.aws/instance-gpu-nam, operator: Exists}]}"),
        "spec.requirements[0].key",
    ),
    (declare("Topology", "t", "{levels: [topology.kubernetes.io/zones, kubernetes.io/hostname]}"), "spec.levels[0]"),
    (
        declare("Flavor", "f", "{nodeLabels: {node.kubernetes.io/instance-typ: x}}"),
        'spec.nodeLabels["node.kubernetes.io/instance-typ"]',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("documents", "path"), PLACES)
def test_every_place_that_names_one(problems: Load, documents: str, path: str) -> None:
    found = [problem for problem in problems(documents) if problem.code is Code.UNKNOWN_NAME]
    assert [problem.path for problem in found] == [path]
    assert "did you mean" in found[0].hint


@pytest.mark.parametrize(
    "level",
    ["cloud.provider.com/topology-rack", "topology.k8s.aws/network-node-layer-2", "topology.kubernetes.io/rack",
     "topology.k8s.aws/network-node-layer-5", "nvidia.com/gpu.clique", "example.com/zone"],
)  # fmt: skip
def test_labels_that_may_be(problems: Load, level: str) -> None:
    assert problems(declare("Topology", "t", f"{{levels: [{level}]}}")) == []


LAYOUT = declare("MigLayout", "cut", "{models: {h100-80gb: [{profiles: {1g.10gb: 3, 2g.20gb: 2}}]}}")
POOL = declare("NodePool", "p", "{gpu: {models: [h100]}, sharing: {mig: {layouts: [cut]}}}")


def test_a_slice_that_no_quota_counts(problems: Load) -> None:
    one = declare("Team", "t", "{quotas: {p: {guaranteed: {nvidia.com/mig-1g.10gb: 3}}}}")
    both = declare("Team", "t", "{quotas: {p: {guaranteed: {nvidia.com/mig-1g.10gb: 3, nvidia.com/mig-2g.20gb: 0}}}}")
    none = declare("Team", "t", "{quotas: {p: {guaranteed: {cpu: 3}}}}")
    (problem,) = problems(LAYOUT, POOL, one)
    assert (problem.code, problem.severity) == (Code.PROFILE_WITHOUT_QUOTA, "error")
    assert problem.path == 'spec.models.h100-80gb[0].profiles["2g.20gb"]'
    assert problems(LAYOUT, POOL, both) == []
    assert problems(LAYOUT, POOL, none) == []
    every = declare("Team", "t", "{quotas: {p: {guaranteed: {muster.dev/gpu-equivalent: 3}}}}")
    assert problems(LAYOUT, POOL, every) == []


def test_equivalents_of_replicas_cannot_be_counted(problems: Load) -> None:
    pool = declare("NodePool", "p", "{gpu: {models: [l4]}, sharing: {timeSlicing: {replicas: 4}}}")
    team = declare("Team", "t", "{quotas: {p: {guaranteed: {muster.dev/gpu-equivalent: 3}}}}")
    (problem,) = problems(pool, team)
    assert (problem.code, problem.severity) == (Code.QUOTA_WITHOUT_CAPACITY, "error")
