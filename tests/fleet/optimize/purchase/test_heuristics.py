"""Classes at a time lead to the machines that pods one by one lead to: in Karpenter's order, and by choice."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings

from fleet.optimize.packing import PackingInstance
from fleet.optimize.purchase import GREEDY, PurchaseProblem, solve
from fleet.optimize.purchase.heuristics import by_choice, provisioning_order
from fleet.optimize.purchase.purchasing import batches, packing_instances
from tests.support.purchases import pod_by_pod, problem, problems

Machines = Counter[tuple[str, tuple[tuple[str, int], ...]]]


def machines(asked: PurchaseProblem) -> Machines:
    found: Machines = Counter()
    for part in packing_instances(asked, {})[0]:
        for it in batches(part, provisioning_order(part)):
            found[it.kind, tuple(sorted(it.pods.items()))] += it.machines
    return found


def sizes(found: Machines) -> Counter[tuple[str, int]]:
    """Equal classes are dealt out as they come: only how many pods stand where can be compared."""
    counted: Counter[tuple[str, int]] = Counter()
    for (kind, pods), count in found.items():
        counted[kind, sum(n for _, n in pods)] += count
    return counted


@settings(max_examples=60)
@given(problems(most_pods=12, limited=False))
def test_a_class_at_a_time_is_pod_by_pod(asked: PurchaseProblem) -> None:
    assert sizes(machines(asked)) == sizes(pod_by_pod(asked))


@pytest.mark.parametrize("seed", range(3))
def test_many_classes_are_pod_by_pod_too(seed: int) -> None:
    """More groups of claims than there is room for at first, of which some are torn apart."""
    draw = random.Random(seed)
    classes = {
        f"c{n:03}": (draw.randint(1, 4), {"cpu": 900 - 4 * n, "memory": draw.randint(1, 999), "gpu": 0})
        for n in range(150)
    }
    kinds = {"wide": (2.0, {"cpu": 2600, "memory": 1200}), "deep": (2.5, {"cpu": 1300, "memory": 3000})}
    asked = problem(classes, kinds)
    assert machines(asked) == pod_by_pod(asked)


def test_a_claim_grows_while_any_kind_holds_it() -> None:
    """The reason why that order is dear: eight small machines would cost half."""
    asked = problem(
        {"gpu": (8, {"cpu": 4, "gpu": 1})},
        {"small": (0.8, {"cpu": 8, "gpu": 1}), "large": (13.35, {"cpu": 64, "gpu": 8})},
    )
    assert machines(asked) == {("large", (("gpu", 8),)): 1}
    answer = solve(asked, GREEDY)
    assert answer.baseline_usd_h == 13.35
    assert answer.cost_usd_h == pytest.approx(6.4)


def test_claims_are_filled_level() -> None:
    """Two claims with one large pod each share the small ones evenly, the first gets the odd one."""
    asked = problem({"big": (2, {"cpu": 9}), "small": (3, {"cpu": 1})}, {"k": (1.0, {"cpu": 16})})
    assert machines(asked) == {("k", (("big", 1), ("small", 2))): 1, ("k", (("big", 1), ("small", 1))): 1}


# -- each class on the kind that is cheapest for it -------------------------------------------------------------------


def drawn(seed: int, classes: int) -> PurchaseProblem:
    """Two sorts of machines, so that some classes go to each."""
    draw = random.Random(seed)
    asked = {
        f"c{n:02}": (draw.randint(1, 60), {"cpu": draw.randint(1, 90), "memory": draw.randint(1, 90)})
        for n in range(classes)
    }
    return problem(asked, {"wide": (1.0, {"cpu": 300, "memory": 100}), "deep": (1.1, {"cpu": 100, "memory": 300})})


def one_by_one(part: PackingInstance) -> Counter[tuple[int, tuple[int, ...]]]:
    """The same said plainly: the next machine takes what it can of each class in turn, the largest share first."""
    missing = part.demand.tolist()
    alone = [[part.price[k] / max(part.holds[c, k], 1.0) for k in range(len(part.price))] for c in range(len(missing))]
    found: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for kind in range(len(part.price)):
        own = [c for c in range(len(missing)) if min(range(len(part.price)), key=lambda k, c=c: alone[c][k]) == kind]
        own.sort(key=lambda c: -max(part.requests[c] / part.capacity[kind]))
        while any(missing[c] for c in own):
            rest, pods = part.capacity[kind].copy(), [0] * len(missing)
            for c in own:
                while pods[c] < missing[c] and (part.requests[c] <= rest).all():
                    rest -= part.requests[c]
                    pods[c] += 1
            missing = [there - taken for there, taken in zip(missing, pods, strict=True)]
            cheapest = next(k for k in range(len(part.price)) if (pods @ part.requests <= part.capacity[k]).all())
            found[cheapest, tuple(pods)] += 1
    return found


@pytest.mark.parametrize(("seed", "classes"), [(0, 2), (1, 9), (2, 40)])
def test_as_many_equal_machines_as_pods_suffice_for_is_machine_by_machine(seed: int, classes: int) -> None:
    (part,), _ = packing_instances(drawn(seed, classes), {})
    mix = by_choice(part)
    rows = zip(mix.kinds.tolist(), map(tuple, mix.pods.tolist()), mix.machines.tolist(), strict=True)
    found: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for kind, pods, count in rows:
        found[kind, pods] += count
    assert found == one_by_one(part)
    assert (mix.placed == part.demand).all()
