"""What must hold between declarations: each row is a small fleet and the one problem it has."""

from collections.abc import Callable

import pytest

from model.problem import Code, Problem
from tests.model.loader.writing import declare

Load = Callable[..., list[Problem]]

POOL = declare("NodePool", "h100", "{instanceTypes: [p5.48xlarge]}")
TEAM = declare("Team", "ml", "{namespaces: [ml], quotas: {h100: {guaranteed: {nvidia.com/gpu: 8}}}}")
QUEUE = declare("Queue", "ml", "{team: ml, flavors: [h100]}")
LAYOUT = declare("MigLayout", "small", "{models: {h100-80gb: [{profiles: {1g.10gb: 7}}]}}")
FLEET = (POOL, TEAM, QUEUE)


def pool(spec: str, name: str = "p") -> str:
    """A pool that a queue reaches, so that nothing is unused."""
    return "---\n".join(
        [
            declare("NodePool", name, spec),
            declare("Team", f"t-{name}", "{}"),
            declare("Queue", f"q-{name}", f"{{team: t-{name}, flavors: [{name}]}}"),
        ]
    )


def layout(models: str) -> str:
    return "---\n".join(
        [declare("MigLayout", "small", f"{{models: {models}}}"), pool("{sharing: {mig: {layouts: [small]}}}")]
    )


def mig_pool(gpu: str, layouts: str = "small") -> str:
    return pool(f"{{gpu: {gpu}, sharing: {{mig: {{layouts: [{layouts}]}}}}}}")


def window(schedule: str, duration: str) -> str:
    return pool(f"{{disruption: {{budgets: [{{nodes: 1, schedule: '{schedule}', duration: {duration}}}]}}}}")


REFERENCES = [
    (
        (POOL, TEAM, declare("Queue", "q", "{team: mll, flavors: [h100]}")),
        "spec.team",
        "there is no Team 'mll'",
        "'ml'",
    ),
    (
        (*FLEET, declare("Queue", "q", "{team: ml, flavors: [h1000]}")),
        "spec.flavors[0]",
        "Flavor or NodePool",
        "'h100'",
    ),
    ((*FLEET, declare("Team", "t", "{parent: org}")), "spec.parent", "there is no Team 'org'", "declared: 'ml'"),
    (
        (*FLEET, declare("Team", "t", "{quotas: {h200: {guaranteed: {cpu: 1}}}}")),
        "spec.quotas.h200",
        "no Flavor or NodePool 'h200'",
        "'h100'",
    ),
    (
        (*FLEET, declare("Team", "t", "{priorityClasses: [x]}")),
        "spec.priorityClasses[0]",
        "PriorityClass 'x'",
        "nothing",
    ),
    ((pool("{sharing: {mig: {layouts: [x]}}}"),), "spec.sharing.mig.layouts[0]", "there is no MigLayout 'x'", ""),
    ((pool("{placement: {topology: x}}"),), "spec.placement.topology", "there is no Topology 'x'", ""),
    ((declare("Flavor", "f", "{nodePools: [x]}"),), "spec.nodePools[0]", "there is no NodePool 'x'", ""),
    ((declare("Flavor", "f", "{nodeLabels: {a: b}, topology: x}"),), "spec.topology", "there is no Topology 'x'", ""),
]


@pytest.mark.parametrize(("documents", "path", "message", "hint"), REFERENCES)
def test_dangling_references(problems: Load, documents: tuple[str, ...], path: str, message: str, hint: str) -> None:
    (problem,) = problems(*documents)
    assert (problem.code, problem.path) == (Code.DANGLING_REFERENCE, path)
    assert message in problem.message
    assert hint in problem.hint


def test_a_hint_names_a_flavor_and_its_pool_once(problems: Load) -> None:
    flavor = declare("Flavor", "h100", "{nodePools: [h100]}")
    (problem,) = problems(*FLEET, flavor, declare("Queue", "q", "{team: ml, flavors: [tpu]}"))
    assert problem.hint == "declared: 'h100'"


def test_a_broken_target_is_not_also_missing(problems: Load) -> None:
    broken = declare("NodePool", "h100", "{replicas: x}")
    (problem,) = problems(broken, TEAM, QUEUE)
    assert problem.code is Code.INVALID_VALUE


def test_an_unreadable_file_silences_only_what_depends_on_it(problems: Load) -> None:
    found = problems(QUEUE, declare("NodePool", "p", "{instanceTypes: [p5]}"), "a: [")
    assert [problem.code for problem in found] == [Code.INVALID_VALUE, Code.YAML_SYNTAX]


TEAMS = [
    ((declare("Team", "a", "{parent: a}"),), Code.CYCLE, "a -> a"),
    (
        (declare("Team", "c", "{parent: a}"), declare("Team", "a", "{parent: b}"), declare("Team", "b", "{parent: c}")),
        Code.CYCLE,
        "a -> b -> c -> a",
    ),
    (
        (declare("Team", "a", "{namespaces: [x]}"), declare("Team", "b", "{namespaces: [y, x]}")),
        Code.NAMESPACE_CLAIMED_TWICE,
        "'x' already belongs to team 'a' (f.yaml:3)",
    ),
    ((declare("Team", "a", "{namespaces: [x, x]}"),), Code.NAMESPACE_CLAIMED_TWICE, "belongs to team 'a'"),
    ((declare("Team", "a", "{namespaces: [x], defaultQueue: q}"),), Code.DANGLING_REFERENCE, "no Queue 'q'"),
    ((declare("Team", "a", "{namespaces: [x], ordinaryPodsQueue: q}"),), Code.DANGLING_REFERENCE, "no Queue 'q'"),
    (
        (
            declare("NodePool", "p", "{instanceTypes: [p5.48xlarge]}"),
            declare("Team", "a", "{namespaces: [x], ordinaryPodsQueue: q}"),
            declare("Team", "b"),
            declare("Queue", "q", "{team: b, flavors: [p]}"),
        ),
        Code.INVALID_VALUE,
        "the queue 'q' is of team 'b'",
    ),
    ((declare("Team", "a", "{ordinaryPodsQueue: q}"),), Code.INVALID_VALUE, "it has none"),
    (
        (
            declare("NodePool", "p", "{instanceTypes: [p5.48xlarge]}"),
            declare("Team", "a", "{namespaces: [x], defaultQueue: q}"),
            declare("Team", "b"),
            declare("Queue", "q", "{team: b, flavors: [p]}"),
        ),
        Code.INVALID_VALUE,
        "the queue 'q' is of team 'b'",
    ),
    ((declare("Team", "a", "{manageJobsWithoutQueueName: true}"),), Code.INVALID_VALUE, "it has none"),
    (
        (declare("Team", "a", "{hardFence: true, quotas: {p: {guaranteed: {cpu: 1}}}}"),),
        Code.INVALID_VALUE,
        "pods in the team's namespaces, and it has none",
    ),
    (
        (declare("Team", "a", "{hardFence: true, namespaces: [x], quotas: {p: {guaranteed: {}}}}"),),
        Code.INVALID_VALUE,
        "what the team's quotas name, and they name nothing",
    ),
    ((declare("Team", "a"), declare("Team", "a")), Code.DUPLICATE_NAME, "the other one is at f.yaml:3"),
    (
        (declare("FleetPolicy", "a"), declare("FleetPolicy", "b")),
        Code.DUPLICATE_NAME,
        "already a FleetPolicy at f.yaml:3",
    ),
]


@pytest.mark.parametrize(("documents", "code", "message"), TEAMS)
def test_teams_and_names(problems: Load, documents: tuple[str, ...], code: Code, message: str) -> None:
    (problem,) = problems(*documents)
    assert problem.code is code
    assert message in problem.message


def test_two_cycles_are_two_problems_and_their_tails_none(problems: Load) -> None:
    parents = {"a": "b", "b": "a", "x": "y", "y": "x", "tail": "a"}
    found = problems(*(declare("Team", name, f"{{parent: {parent}}}") for name, parent in parents.items()))
    assert [problem.message.rsplit(": ")[-1] for problem in found] == ["a -> b -> a", "x -> y -> x"]


REQUIREMENT = "requirements: [{key: karpenter.k8s.aws/instance-cpu, operator: "
POOLS = [
    ("{" + REQUIREMENT + "In}]}", Code.IMPOSSIBLE_REQUIREMENT, "spec.requirements[0]", "In needs at least one value"),
    (
        "{" + REQUIREMENT + "Exists, values: [a]}]}",
        Code.IMPOSSIBLE_REQUIREMENT,
        "spec.requirements[0]",
        "takes no values",
    ),
    (
        "{" + REQUIREMENT + "Gt, values: [a]}]}",
        Code.IMPOSSIBLE_REQUIREMENT,
        "spec.requirements[0]",
        "exactly one integer",
    ),
    (
        "{" + REQUIREMENT + 'In, values: ["8"], minValues: 2}]}',
        Code.IMPOSSIBLE_REQUIREMENT,
        "spec.requirements[0].minValues",
        "minValues is 2, but only 1 are listed",
    ),
    (
        "{" + REQUIREMENT + 'Gt, values: ["8"]}, {key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: ["9"]}]}',
        Code.IMPOSSIBLE_REQUIREMENT,
        "spec.requirements[1]",
        "exclude each other",
    ),
    (
        "{zones: [us-east-1a], requirements: [{key: topology.kubernetes.io/zone, operator: In, values: [us-east-1b]}]}",
        Code.IMPOSSIBLE_REQUIREMENT,
        "spec.requirements[0]",
        "exclude each other",
    ),
    (
        "{zones: [us-east-1a], template: {labels: {topology.kubernetes.io/zone: us-east-1b}}}",
        Code.IMPOSSIBLE_REQUIREMENT,
        'spec.template.labels["topology.kubernetes.io/zone"]',
        "exclude each other",
    ),
    ("{gpu: {minCount: 8, maxCount: 4}}", Code.IMPOSSIBLE_REQUIREMENT, "spec.gpu.maxCount", "less than minCount 8"),
    ("{instanceTypes: [p5]}", Code.INVALID_VALUE, "spec.instanceTypes[0]", "'p5' is not an instance type"),
    ("{instanceTypes: [ml.p5.48xlarge]}", Code.INVALID_VALUE, "spec.instanceTypes[0]", "not an instance type"),
    ("{instanceFamilies: [p5.48xlarge]}", Code.INVALID_VALUE, "spec.instanceFamilies[0]", "is not a family"),
    ("{zones: [us-east-1]}", Code.INVALID_VALUE, "spec.zones[0]", "is not an availability zone"),
    ("{zones: [use1-az1]}", Code.INVALID_VALUE, "spec.zones[0]", "is not an availability zone"),
    ("{gpu: {models: [H100]}}", Code.INVALID_VALUE, "spec.gpu.models[0]", "is not a GPU name"),
    (
        "{capacityTypes: [spot], reservations: {select: [{id: cr-1}]}}",
        Code.INVALID_VALUE,
        "spec",
        "only used where capacityTypes has reserved",
    ),
    (
        "{capacityTypes: [reserved], reservations: {select: [{id: cr-1, owner: '123456789012'}]}}",
        Code.INVALID_VALUE,
        "spec.reservations.select[0]",
        "either id, or at least one of",
    ),
    (
        "{capacityTypes: [reserved], reservations: {select: [{}]}}",
        Code.INVALID_VALUE,
        "spec.reservations.select[0]",
        "either id, or at least one of",
    ),
    ("{capacityTypes: [spot, spot]}", Code.INVALID_VALUE, "spec.capacityTypes[1]", "'spot' is listed twice"),
    ("{zones: [us-east-1a, us-east-1a]}", Code.INVALID_VALUE, "spec.zones[1]", "is listed twice"),
    (
        "{template: {taints: [{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]}}",
        Code.INVALID_VALUE,
        "spec.template.taints[1]",
        "'a:NoSchedule' is listed twice",
    ),
]


@pytest.mark.parametrize(("spec", "code", "path", "message"), POOLS)
def test_pools(problems: Load, spec: str, code: Code, path: str, message: str) -> None:
    (problem,) = problems(pool(spec))
    assert (problem.code, problem.path) == (code, path)
    assert message in problem.message


@pytest.mark.parametrize(
    "spec",
    [
        "{requirements: [{key: x, operator: DoesNotExist}]}",
        "{zones: [us-west-2-lax-1a, eu-central-1c]}",
        "{capacityTypes: [reserved, spot], reservations: {select: [{id: cr-1}, {tags: {a: '*'}, match: open}]}}",
        "{placement: {group: pg, strategy: spread}}",
        "{gpu: {models: [rtx-pro-server-6000], minCount: 2, maxCount: 2}}",
        "{" + REQUIREMENT + 'In, values: ["8", "16"], minValues: 2}]}',
        "{template: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoExecute}]}}",
    ],
)
def test_good_pools(problems: Load, spec: str) -> None:
    assert problems(pool(spec)) == []


def test_a_placement_group_is_of_one_kind(problems: Load) -> None:
    first, other = pool("{placement: {group: pg}}", "a"), pool("{placement: {group: pg, strategy: spread}}", "b")
    (problem,) = problems(first, other)
    assert (problem.code, problem.path) == (Code.INVALID_VALUE, "spec.placement.strategy")
    assert "node pool a says that placement group 'pg' is a cluster group" in problem.message


WINDOWS = [
    ("61 * * * *", "1h", "schedule", "minute: 61"),
    ("0 9 * * mon-fry", "1h", "schedule", "'fry' is not a number"),
    ("@every 1h", "1h", "schedule", "unknown schedule"),
    ("0 0 30 2 *", "1h", "schedule", "never fires"),
    ("@daily", "Never", "duration", "needs a duration with an end"),
    ("@daily", "0s", "duration", "does nothing"),
]


@pytest.mark.parametrize(("schedule", "duration", "field", "message"), WINDOWS)
def test_windows(problems: Load, schedule: str, duration: str, field: str, message: str) -> None:
    freeze = f"{{freezeWindows: [{{name: x, schedule: '{schedule}', duration: {duration}}}]}}"
    in_pool, in_policy = problems(window(schedule, duration), declare("FleetPolicy", "p", freeze))
    assert in_pool.path == f"spec.disruption.budgets[0].{field}"
    assert in_policy.path == f"spec.freezeWindows[0].{field}"
    for problem in (in_pool, in_policy):
        assert problem.code is Code.INVALID_SCHEDULE
        assert message in problem.message


LAYOUTS = [
    ("{h100-80gb: [{profiles: {1g.10gb: 8}}]}", "spec.models.h100-80gb[0].profiles", "at most 7 fit", ""),
    ("{h100-80gb: [{profiles: {3g.40gb: 2, 1g.10gb: 1}}]}", "spec.models.h100-80gb[0].profiles", "9 memory slices", ""),
    ("{h100-80gb: [{profiles: {1g.5gb: 1}}]}", "spec.models.h100-80gb[0].profiles", "no MIG profile '1g.5gb'", ""),
    ("{h100: [{profiles: {1g.10gb: 1}}]}", "spec.models.h100", "unknown GPU model 'h100'", "did you mean 'h100-80gb'?"),
    ("{l4: [{profiles: {1g.10gb: 1}}]}", "spec.models.l4", "unknown GPU model 'l4'", "known are 'a100-40gb'"),
    (
        "{h100-80gb: [{devices: [0, 1]}, {devices: [1]}]}",
        "spec.models.h100-80gb[1].devices[0]",
        "already in group 0",
        "",
    ),
    ("{h100-80gb: [{devices: [0, 0]}]}", "spec.models.h100-80gb[0].devices[1]", "already in group 0", ""),
    ("{h100-80gb: [{devices: [0, 3]}]}", "spec.models.h100-80gb", "no group names device 1, 2", "whole"),
    ("{h100-80gb: [{devices: [0]}, {}]}", "spec.models.h100-80gb[1]", "must be the only one", ""),
    (
        "{gb200-186gb: [{profiles: {1g.23gb: 7}}], gb200-189gb: [{profiles: {1g.24gb: 7}}]}",
        "spec.models.gb200-189gb",
        "one GPU under two drivers",
        "a layout for each",
    ),
]


@pytest.mark.parametrize(("models", "path", "message", "hint"), LAYOUTS)
def test_impossible_layouts(problems: Load, models: str, path: str, message: str, hint: str) -> None:
    (problem,) = problems(layout(models))
    assert (problem.code, problem.path) == (Code.IMPOSSIBLE_MIG_LAYOUT, path)
    assert message in problem.message
    assert hint in problem.hint


EIGHT = "{models: {h100-80gb: [{devices: [0, 1, 2, 3]}, {devices: [4, 5, 6, 7], profiles: {1g.10gb: 7}}]}}"


@pytest.mark.parametrize(
    ("gpu", "spec", "message"),
    [
        ("{models: [a100]}", "{models: {h100-80gb: [{}]}}", "the pool's GPU 'a100' is 'a100-40gb', 'a100-80gb'"),
        ("{models: [l4]}", "{models: {h100-80gb: [{}]}}", "MIG cannot cut the GPU 'l4'"),
        (
            "{models: [a100], minMemoryMiB: 80000}",
            "{models: {a100-40gb: [{}]}}",
            "says how to cut 'a100-40gb', but the pool's GPU 'a100' is 'a100-80gb'",
        ),
        ("{models: [h100], maxCount: 4}", EIGHT, "names 8 GPUs of h100-80gb, the pool's machines carry at most 4"),
        ("{models: [h100], minCount: 16}", EIGHT, "carry at least 16"),
    ],
)
def test_layouts_that_do_not_suit(problems: Load, gpu: str, spec: str, message: str) -> None:
    (problem,) = problems(declare("MigLayout", "small", spec), mig_pool(gpu))
    assert (problem.code, problem.path) == (Code.LAYOUT_MISMATCH, "spec.sharing.mig.layouts[0]")
    assert message in problem.message


@pytest.mark.parametrize("gpu", ["{models: [h100]}", "{models: [h100], minCount: 8, maxCount: 8}", "{minCount: 8}"])
def test_layouts_that_suit(problems: Load, gpu: str) -> None:
    assert problems(declare("MigLayout", "small", EIGHT), mig_pool(gpu)) == []


TOPOLOGIES = [
    ("[kubernetes.io/hostname, topology.kubernetes.io/zone]", 0, "'kubernetes.io/hostname' must be the last level"),
    ("[kubernetes.io/hostname, example.com/gpu]", 0, "'kubernetes.io/hostname' must be the last level"),
    ("[topology.kubernetes.io/zone, example.com/block, topology.kubernetes.io/region]", 2, "must stand before"),
    ("[example.com/block, example.com/rack, example.com/block]", 2, "is listed twice"),
]


@pytest.mark.parametrize(("levels", "index", "message"), TOPOLOGIES)
def test_topologies(problems: Load, levels: str, index: int, message: str) -> None:
    (problem,) = problems(declare("Topology", "t", f"{{levels: {levels}}}"))
    assert problem.path == f"spec.levels[{index}]"
    assert message in problem.message


@pytest.mark.parametrize(
    "levels",
    [
        "[topology.kubernetes.io/region, topology.kubernetes.io/zone, example.com/rack, kubernetes.io/hostname]",
        "[example.com/block, topology.kubernetes.io/zone]",
        "[kubernetes.io/hostname]",
    ],
)
def test_good_topologies(problems: Load, levels: str) -> None:
    assert problems(declare("Topology", "t", f"{{levels: {levels}}}")) == []


@pytest.mark.parametrize(
    ("pools", "words"),
    [("h100, a100", "there is no NodePool 'a100'"), ("h100, h100", "'h100' is listed twice"), ("", "at least 1 item")],
)
def test_a_roll_out_names_pools_that_there_are(problems: Load, pools: str, words: str) -> None:
    found = problems(declare("FleetPolicy", "p", f"{{rollout: {{pools: [{pools}]}}}}"), declare("NodePool", "h100"))
    assert [problem.path.startswith("spec.rollout.pools") for problem in found if words in problem.message] == [True]


def test_names_within_a_policy(problems: Load) -> None:
    window = "{name: x, schedule: '@daily', duration: 1h}"
    sink = "{name: y, addressEnv: A}"
    found = problems(
        declare("FleetPolicy", "p", f"{{freezeWindows: [{window}, {window}], notifications: [{sink}, {sink}]}}")
    )
    assert [problem.path for problem in found] == ["spec.freezeWindows[1]", "spec.notifications[1]"]


def quota(flavor: str, amounts: str) -> str:
    return declare("Team", "z", f"{{quotas: {{{flavor}: {{guaranteed: {amounts}}}}}}}")


MIG = (LAYOUT, mig_pool("{models: [h100]}"))
RENAMED = "{sharing: {timeSlicing: {replicas: 4, renameByDefault: true}}}"
ON_DEMAND = "{gpu: {models: [h100]}, sharing: {dra: {dynamicMig: true}}}"
CAPACITY = [
    ((*MIG, quota("p", "{nvidia.com/mig-1g.10gb: 7}")), None),
    ((*MIG, quota("p", "{nvidia.com/mig-3g.40gb: 1}")), "no machine of flavor 'p' offers 'nvidia.com/mig-3g.40gb'"),
    ((*MIG, quota("p", "{nvidia.com/gpu: 8}")), "no machine of flavor 'p' offers 'nvidia.com/gpu'"),
    ((*MIG, quota("p", "{nvidia.com/gpu: 0}")), None),
    ((*FLEET, quota("h100", "{nvidia.com/mig-1g.10gb: 7}")), "offers 'nvidia.com/mig-1g.10gb'"),
    ((*FLEET, quota("h100", "{cpu: 5, memory: 1Gi, example.com/fpga: 1}")), None),
    ((*FLEET, quota("h100", "{nvidia.com/gpu.shared: 4}")), "offers 'nvidia.com/gpu.shared'"),
    ((pool(RENAMED), quota("p", "{nvidia.com/gpu.shared: 4}")), None),
    ((pool(RENAMED), quota("p", "{nvidia.com/gpu: 1}")), "no machine of flavor 'p' offers 'nvidia.com/gpu'"),
    ((pool(ON_DEMAND), quota("p", "{nvidia.com/mig-1g.10gb: 7, nvidia.com/gpu: 1}")), None),
    ((pool(ON_DEMAND), quota("p", "{nvidia.com/mig-1g.5gb: 7}")), "offers 'nvidia.com/mig-1g.5gb'"),
    ((*FLEET, quota("h100", "{vpc.amazonaws.com/efa: 32}")), "offers 'vpc.amazonaws.com/efa'"),
    ((pool("{placement: {efa: true}}"), quota("p", "{vpc.amazonaws.com/efa: 32}")), None),
    ((declare("MigLayout", "small", EIGHT), mig_pool("{}"), quota("p", "{nvidia.com/gpu: 4}")), None),
    ((declare("Flavor", "own", "{nodeLabels: {a: b}}"), quota("own", "{nvidia.com/mig-1g.5gb: 1}")), None),
    (
        (*MIG, declare("Flavor", "both", "{nodePools: [p]}"), quota("both", "{nvidia.com/gpu: 1}")),
        "no machine of flavor 'both'",
    ),
]


@pytest.mark.parametrize(("documents", "message"), CAPACITY)
def test_quotas_without_capacity(problems: Load, documents: tuple[str, ...], message: str | None) -> None:
    found = [problem for problem in problems(*documents) if problem.code is not Code.PROFILE_WITHOUT_QUOTA]
    if message is None:
        assert found == []
        return
    (problem,) = found
    assert problem.code is Code.QUOTA_WITHOUT_CAPACITY
    assert message in problem.message
    assert problem.path.startswith("spec.quotas.")


def test_shapes_that_are_cut_on_demand_are_counted(problems: Load) -> None:
    """One that no quota names is an error at the pool; GPU-equivalents count every shape."""
    found = problems(pool(ON_DEMAND), quota("p", "{nvidia.com/gpu: 8, nvidia.com/mig-1g.10gb: 7}"))
    assert {problem.code for problem in found if problem.severity == "error"} == {Code.PROFILE_WITHOUT_QUOTA}
    assert {problem.path for problem in found} == {"spec.sharing.dra.dynamicMig"}
    assert problems(pool(ON_DEMAND), quota("p", "{muster.dev/gpu-equivalent: 8}")) == []


def test_a_flavor_named_like_a_pool_includes_it(problems: Load) -> None:
    other = pool("{}", "other")
    found = problems(*FLEET, other, declare("Flavor", "h100", "{nodePools: [other]}"))
    assert Code.AMBIGUOUS_FLAVOR in {problem.code for problem in found if problem.severity == "error"}
    found = problems(*FLEET, other, declare("Flavor", "h100", "{nodePools: [other, h100]}"))
    assert found == []


def test_unused_declarations_are_warnings(problems: Load) -> None:
    found = problems(*FLEET, LAYOUT, declare("NodePool", "lost"), declare("NodePool", "fixed", "{replicas: 1}"))
    assert [(problem.severity, problem.code) for problem in found] == [("warning", Code.UNUSED)] * 2
    assert "no NodePool uses this layout" in found[0].message
    assert "pool: nothing will ever be bought from it" in found[1].message


@pytest.mark.parametrize(
    ("serves", "words"),
    [("[Pods]", []), ("[Gangs, Pods]", ["pool: for gangs nothing will ever be bought from it"])],
)
def test_a_pool_for_ordinary_pods_needs_no_queue(problems: Load, serves: str, words: list[str]) -> None:
    found = problems(*FLEET, declare("NodePool", "web", f"{{serves: {serves}}}"))
    assert [problem.message.partition("includes this ")[2] for problem in found] == words


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ("type: PagerDuty", "PagerDuty needs secretEnv"),
        ("type: PagerDuty, secretEnv: K, severity: Info", "PagerDuty is sent warnings only"),
        ("type: Slack, secretEnv: K", "secretEnv is of no use to Slack"),
        ("type: Teams, secretEnv: K", "secretEnv is of no use to Teams"),
        ("teams: [nobody]", "there is no Team 'nobody'"),
        ("teams: [a, a]", "'a'"),
    ],
)
def test_a_sink_is_told_what_its_type_cannot_use(problems: Load, sink: str, words: str) -> None:
    spec = f"{{notifications: [{{name: s, addressEnv: A, {sink}}}]}}"
    found = problems(declare("FleetPolicy", "p", spec), declare("Team", "a", "{namespaces: [a]}"))
    assert any(words in problem.message for problem in found), found
