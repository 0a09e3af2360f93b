"""`topology` for the agent: pods under spread constraints, in one pass or in several on the same cluster."""

from collections import Counter
from collections.abc import Iterator

from model import labels
from tests.conformance.cases import Case
from tests.conformance.karpenter import prices
from tests.conformance.karpenter.manifests import Given, Obj, listed, only, pod_manifest
from tests.conformance.karpenter.rounds import UpstreamAnswer
from tests.conformance.karpenter.worlds import AgentWorld, catalog_of, shortages_of, types_of

OWN = {"test": "test"}
"""What pods are labelled with where a row says no more."""
_CHANGES = ("max_skew", "min_domains", "when_unsatisfiable", "node_affinity_policy", "node_taints_policy")
_STEP = ("pods", "pod_cpu_m", "spread", "node_pool_requirements", *_CHANGES)
_ROW = ("instance_types", "node_pools", "pods", "pod_cpu_m", "spread", "existing_pods", "steps")
_EXISTING = ("zone", "capacity_type", "labels", "count")


def play(case: Case) -> AgentWorld:
    """All steps in order."""
    given = case["given"]
    only("row", given, _ROW)
    types = types_of(given.get("instance_types", {"catalog": "default"}), case["folder"])
    world = AgentWorld(catalog_of(types), shortages=shortages_of(types))
    for number, each in enumerate(given.get("existing_pods", ())):
        _stand(world, f"existing-{number}", each)
    for number, step in enumerate(given.get("steps", [given])):
        if "delete_pods_not_in" in step:
            _empty(world, step["delete_pods_not_in"])
            continue
        only("step", step, {*_STEP, *_ROW})
        manifests = list(_manifests(number, step, given))
        world.play(_pools(given, step), manifests)
    return world


def _stand(world: AgentWorld, name: str, given: Given) -> None:
    only("existing pods", given, _EXISTING)
    told = {labels.ZONE: given.get("zone"), labels.CAPACITY_TYPE: given.get("capacity_type")}
    world.stand(name, {label: value for label, value in told.items() if value}, {"pods": given.get("count", 1)})
    for number in range(given.get("count", 1)):
        world.bound(pod_manifest(f"{name}-{number}", {"labels": given.get("labels", OWN)}), name)


def _empty(world: AgentWorld, zone: str) -> None:
    nodes = world.snapshot.nodes
    world.delete(pod for pod, node in world.places().items() if nodes[node].labels.get(labels.ZONE) != zone)


def _pools(given: Given, step: Given) -> list[Given]:
    pools = given.get("node_pools") or [{}]
    if "node_pool_requirements" not in step:
        return pools
    return [{**pool, "requirements": step["node_pool_requirements"]} for pool in pools]


def _manifests(number: int, step: Given, given: Given) -> Iterator[Obj]:
    pods = [{}] * step["pods"] if isinstance(step["pods"], int) else step["pods"]
    listed_pods = isinstance(given.get("pods"), list)
    for serial, each in enumerate(pods):
        own = {"app": each["app"]} if "app" in each else OWN
        spread = listed(each["spread"]) if "spread" in each else _usual(step, given, own_only=listed_pods)
        said = {"cpu_m": step.get("pod_cpu_m", 0), **each, "labels": own, "spread": spread}
        yield pod_manifest(f"step-{number}-pod-{serial:03}", said)


def _usual(step: Given, given: Given, *, own_only: bool) -> list[Given]:
    """The constraints of the row, or one over the usual domain, as the step changes them."""
    if "spread" not in given and own_only:
        return []
    said = given.get("spread", {"topology_key": _key(given), "max_skew": 1})
    changed = {word: step[word] for word in _CHANGES if word in step}
    return [{**each, **changed} for each in listed(said)]


def _key(given: Given) -> str:
    """What the pods of steps are spread over: by what the first of them narrows the pool down."""
    told = [each["key"] for step in given.get("steps", ()) for each in step.get("node_pool_requirements", ())]
    return str(told[0]) if told else labels.ZONE


def upstream(case: Case) -> UpstreamAnswer:
    """Pods that run of those that waited, and what machines for them cost by the row (USD an hour).

    Pods that were deleted leave machines of which a row does not say what they cost.
    """
    given, expect = case["given"], case["expect"]
    types = types_of(given.get("instance_types", {"catalog": "default"}), case["folder"])
    pool = (given.get("node_pools") or [{}])[0]
    if "pods_per_domain_unordered" not in expect:
        pods = [{}] * given["pods"] if isinstance(given["pods"], int) else given["pods"]
        pods = [pod for pod, runs in zip(pods, expect.get("scheduled", [True] * len(pods)), strict=True) if runs]
        asked = [{word: pod[word] for word in ("cpu_m", "arch") if word in pod} for pod in pods]
        cost_usd_h = prices.of_nodes(types, asked, expect.get("nodes", len(pods)), pool)
        return UpstreamAnswer(len(pods), cost_usd_h, "scheduled" in expect)
    standing = [each.get("count", 1) for each in given.get("existing_pods", ())]
    domains = Counter(expect["pods_per_domain_unordered"])
    domains.subtract(standing)
    placed = sum(expect["pods_per_domain_unordered"]) - sum(standing)
    if any("delete_pods_not_in" in step for step in given.get("steps", ())) or min(domains.values()) < 0:
        return UpstreamAnswer(placed, None)
    asked_of_each = {"cpu_m": max(step.get("pod_cpu_m", 0) for step in given.get("steps", [given]))}
    costs = (prices.of_some(types, asked_of_each, pods, {}) for pods in domains.elements())
    return UpstreamAnswer(placed, sum(costs))


def otherwise(case: Case, world: AgentWorld) -> str:
    """How many pods stand in each domain, where that is not as upstream."""
    expected = case["expect"].get("pods_per_domain_unordered")
    if expected is None:
        return ""
    given, nodes = case["given"], world.snapshot.nodes
    key = listed(given["spread"])[0]["topology_key"] if "spread" in given else _key(given)
    found = sorted(Counter(nodes[node].labels.get(key, "") for node in world.places().values()).values())
    return "" if found == sorted(expected) else f"pods per domain {found}, upstream {sorted(expected)}"
