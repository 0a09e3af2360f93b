"""Order by use: each row is a small repository and the one problem it has, or none."""

from collections.abc import Callable

import pytest

from model.problem import Code, Problem, Severity
from tests.model.loader.writing import declare
from tests.model.upstream.writing import FLAVOR, manifest, quota

Load = Callable[..., list[Problem]]

POOL = declare("NodePool", "h100", "{instanceTypes: [p5.48xlarge]}")
TEAM = declare("Team", "ml", "{namespaces: [vision, speech], quotas: {h100: {guaranteed: {nvidia.com/gpu: 8}}}}")
QUEUE = declare("Queue", "ml", "{team: ml, flavors: [h100], admissionFairSharing: {namespaceWeights: {vision: 2}}}")
OURS = (POOL, TEAM, QUEUE)
MODE = "admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}"
THEIRS = (
    FLAVOR,
    manifest("ClusterQueue", "q", f"{{{MODE}, resourceGroups: {quota()}}}"),
    manifest("LocalQueue", "l", "{clusterQueue: q, fairSharing: {weight: 2}}", namespace="n"),
)


def policy(sharing: str = "{usageHalfLifeTime: 168h}") -> str:
    return declare("FleetPolicy", "p", f"{{admissionFairSharing: {sharing}}}")


def both(resource: str) -> str:
    """A ClusterQueue that goes by use and has quota of GPUs and of another resource."""
    cells = ", ".join(f"{{name: {name}, nominalQuota: 8}}" for name in ("nvidia.com/gpu", resource))
    groups = f"[{{coveredResources: [nvidia.com/gpu, {resource}], flavors: [{{name: f, resources: [{cells}]}}]}}]"
    return manifest("ClusterQueue", "q", f"{{{MODE}, resourceGroups: {groups}}}")


def test_nothing_is_wrong_with_queues_that_go_by_use(problems: Load) -> None:
    assert problems(*OURS, *THEIRS, policy()) == []
    assert (
        problems(*OURS, policy("{usageHalfLifeTime: 0s, usageSamplingInterval: 1m, resourceWeights: {cpu: 0}}")) == []
    )
    assert problems(FLAVOR, both("memory"), policy("{usageHalfLifeTime: 1h, resourceWeights: {memory: 0}}")) == []
    assert problems(FLAVOR, both("cpu"), policy()) == []


ROWS = [
    pytest.param(
        OURS, "error", Code.DANGLING_REFERENCE, "spec.admissionFairSharing", "needs spec.admissionFairSharing of",
        "declare a FleetPolicy with", id="a Queue without a policy",
    ),
    pytest.param(
        THEIRS, "error", Code.DANGLING_REFERENCE, "spec.admissionScope.admissionMode", "nothing says how use is",
        "declare a FleetPolicy with", id="a ClusterQueue without a policy: the mode would silently do nothing",
    ),
    pytest.param(
        (*THEIRS, declare("FleetPolicy", "p")), "error", Code.DANGLING_REFERENCE, "spec.admissionScope.admissionMode",
        "needs spec.admissionFairSharing", "to the FleetPolicy at", id="a policy that says nothing about it",
    ),
    pytest.param(
        (POOL, TEAM, QUEUE.replace("vision", "visoin"), policy()), "error", Code.DANGLING_REFERENCE,
        "spec.admissionFairSharing.namespaceWeights.visoin", "'visoin' is none of team 'ml'", "did you mean 'vision'?",
        id="a weight for a namespace of nobody",
    ),
    pytest.param(
        (FLAVOR, manifest("ClusterQueue", "q", f"{{resourceGroups: {quota()}}}"), THEIRS[2]), "warning", Code.UNUSED,
        "spec.fairSharing", "ClusterQueue 'q' does not go by what was used", "admissionMode", id="a weight in vain",
    ),
    pytest.param(
        (policy(),), "warning", Code.UNUSED, "spec.admissionFairSharing", "no queue goes by what was used",
        "admissionFairSharing: {}", id="a policy for nobody",
    ),
    pytest.param(
        (FLAVOR, both("memory"), policy()), "warning", Code.INVALID_VALUE, "spec.admissionFairSharing",
        "memory counts by the byte", "resourceWeights.memory", id="bytes that outweigh everything",
    ),
    pytest.param(
        (POOL, TEAM.replace("gpu: 8", "gpu: 8, ephemeral-storage: 1Ti"), QUEUE, policy()), "warning",
        Code.INVALID_VALUE, "spec.admissionFairSharing", "ephemeral-storage counts by the byte",
        "resourceWeights.ephemeral-storage", id="of a team too",
    ),
    pytest.param(
        (*OURS, policy("{usageHalfLifeTime: Never}")), "error", Code.INVALID_VALUE,
        "spec.admissionFairSharing.usageHalfLifeTime", "must end", "", id="use that is never forgotten",
    ),
    pytest.param(
        (*OURS, policy("{usageHalfLifeTime: 1h, usageSamplingInterval: 0s}")), "error", Code.INVALID_VALUE,
        "spec.admissionFairSharing.usageSamplingInterval", "more than 0s", "", id="no interval",
    ),
    pytest.param(
        (*OURS, policy("{usageHalfLifeTime: 1h, usageSamplingInterval: Never}")), "error", Code.INVALID_VALUE,
        "spec.admissionFairSharing.usageSamplingInterval", "not Never", "", id="no end of the interval",
    ),
    pytest.param(
        (*OURS, policy("{}")), "error", Code.MISSING_KEY, "spec.admissionFairSharing",
        "'usageHalfLifeTime' is required", "", id="no half life",
    ),
    pytest.param(
        (*OURS, policy("{usageHalfLifeTime: 1h, resourceWeights: {cpu: -1}}")), "error", Code.INVALID_VALUE,
        "spec.admissionFairSharing.resourceWeights.cpu", "at least 0", "", id="a negative weight",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("documents", "severity", "code", "path", "message", "hint"), ROWS)
def test_the_one_problem(
    problems: Load, documents: tuple[str, ...], severity: Severity, code: Code, path: str, message: str, hint: str
) -> None:
    (problem,) = problems(*documents)
    assert (problem.severity, problem.code, problem.path) == (severity, code, path)
    assert message in problem.message
    assert hint in problem.hint


def test_nothing_is_said_of_a_policy_that_is_broken_or_may_stand_in_an_unreadable_file(problems: Load) -> None:
    broken = declare("FleetPolicy", "p", "{guardRail: {}}")
    assert [problem.code for problem in problems(*OURS, broken)] == [Code.UNKNOWN_KEY]
    assert Code.DANGLING_REFERENCE not in {problem.code for problem in problems(*OURS, "a: [")}
