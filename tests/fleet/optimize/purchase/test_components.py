"""Parts are as few, as small and as alike as they can be."""

from dataclasses import replace

import numpy as np
import pytest

from fleet.optimize.purchase import ExistingMachine, Limit, MachineKind, PodDemand, PurchaseProblem
from fleet.optimize.purchase.purchasing import packing_instances
from tests.support.purchases import RESOURCES, problem


def of(classes: dict[str, set[str]], kinds: dict[str, float], **more: object) -> PurchaseProblem:
    """Classes of one pod by the kinds they may stand on; kinds by price, each a little larger than the one before."""
    return PurchaseProblem(
        RESOURCES,
        tuple(PodDemand(name, {"cpu": 1 + n}, frozenset(own), 1) for n, (name, own) in enumerate(classes.items())),
        tuple(MachineKind(name, price, {"cpu": 10 + n}) for n, (name, price) in enumerate(kinds.items())),
        **more,  # type: ignore[arg-type]
    )


PARTS = {
    "kinds of their own": (of({"a": {"k"}, "b": {"l"}}, {"k": 1.0, "l": 1.0}), [{"a"}, {"b"}]),
    "a kind in common": (of({"a": {"k", "l"}, "b": {"l"}}, {"k": 1.0, "l": 1.0}), [{"a", "b"}]),
    "a chain": (of({"a": {"k"}, "b": {"l"}, "c": {"k", "l"}}, {"k": 1.0, "l": 1.0}), [{"a", "b", "c"}]),
    "a limit in common": (
        of({"a": {"k"}, "b": {"l"}}, {"k": 1.0, "l": 1.0}, limits=(Limit("x", "machines", 3, frozenset({"k", "l"})),)),
        [{"a", "b"}],
    ),
    "limits apart": (
        of(
            {"a": {"k"}, "b": {"l"}},
            {"k": 1.0, "l": 1.0},
            limits=(Limit("x", "machines", 3, frozenset({"k"})), Limit("y", "usd_h", 3, frozenset({"l"}))),
        ),
        [{"a"}, {"b"}],
    ),
    "a kind that is not there": (of({"a": {"k", "nowhere"}, "b": {"nowhere"}}, {"k": 1.0}), [{"a"}]),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_share_neither_kinds_nor_limits(name: str) -> None:
    asked, expected = PARTS[name]
    found, _ = packing_instances(asked, {})
    assert sorted(sorted(n for group in part.members for n, _ in group) for part in found) == [
        sorted(it) for it in expected
    ]


BEATEN = {
    "dearer and smaller": ({"k": (1.0, {"cpu": 8}), "l": (2.0, {"cpu": 4})}, {"k"}),
    "dearer and larger": ({"k": (1.0, {"cpu": 8}), "l": (2.0, {"cpu": 16})}, {"k", "l"}),
    "dearer, and larger than all pods together": ({"k": (1.0, {"cpu": 99}), "l": (2.0, {"cpu": 999})}, {"k"}),
    "equal: the first by name": ({"l": (1.0, {"cpu": 8}), "k": (1.0, {"cpu": 8})}, {"k"}),
    "larger in what nobody asks for": ({"k": (1.0, {"cpu": 8}), "l": (2.0, {"cpu": 8, "gpu": 8})}, {"k"}),
}


@pytest.mark.parametrize("name", BEATEN)
def test_kinds_that_another_one_beats_are_gone(name: str) -> None:
    kinds, kept = BEATEN[name]
    (part,), _ = packing_instances(problem({"a": (9, {"cpu": 2})}, kinds), {})
    assert {kind for names in part.names for kind in names} == kept


def test_a_kind_that_is_scarce_beats_nobody() -> None:
    asked = problem({"a": (9, {"cpu": 2})}, {"k": (1.0, {"cpu": 8}), "l": (2.0, {"cpu": 4})})
    asked = replace(asked, kinds=(replace(asked.kinds[0], most=2), asked.kinds[1]))
    (part,), _ = packing_instances(asked, {})
    assert part.names == (("k",), ("l",))


def test_equal_classes_and_equal_existing_machines_are_one() -> None:
    names = frozenset({"k", "r1", "r2", "r3"})
    classes = tuple(PodDemand(name, {"cpu": 1000, "memory": 2048}, names, 2) for name in ("b", "a"))
    existing = tuple(
        ExistingMachine(name, {"cpu": cpu, "memory": 4096}) for name, cpu in (("r1", 1000), ("r2", 4000), ("r3", 1000))
    )
    (part,), _ = packing_instances(
        PurchaseProblem(RESOURCES, classes, (MachineKind("k", 1.0, {"cpu": 8000, "memory": 8192}),), (), existing), {}
    )
    assert part.members == ((("a", 2), ("b", 2)),)
    assert part.requests.tolist() == [[1.0, 1.0]]  # in units of what divides all requests
    assert dict(zip(part.names, part.most.tolist(), strict=True)) == {("r1", "r3"): 2.0, ("r2",): 1.0, ("k",): np.inf}
