"""Each class on the kind that is cheapest for it, as if machines were filled one after another."""

import random
from collections import Counter

import pytest

from fleet.optimize.purchase import Problem
from fleet.optimize.purchase.choice import by_choice
from fleet.optimize.purchase.cut import parts_of
from fleet.optimize.purchase.part import Part
from tests.support.purchases import problem


def drawn(seed: int, classes: int) -> Problem:
    """Two sorts of machines, so that some classes go to each."""
    draw = random.Random(seed)
    asked = {
        f"c{n:02}": (draw.randint(1, 60), {"cpu": draw.randint(1, 90), "memory": draw.randint(1, 90)})
        for n in range(classes)
    }
    return problem(asked, {"wide": (1.0, {"cpu": 300, "memory": 100}), "deep": (1.1, {"cpu": 100, "memory": 300})})


def one_by_one(part: Part) -> Counter[tuple[int, tuple[int, ...]]]:
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
    (part,), _ = parts_of(drawn(seed, classes), {})
    mix = by_choice(part)
    rows = zip(mix.kinds.tolist(), map(tuple, mix.pods.tolist()), mix.machines.tolist(), strict=True)
    found: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for kind, pods, count in rows:
        found[kind, pods] += count
    assert found == one_by_one(part)
    assert (mix.placed == part.demand).all()
