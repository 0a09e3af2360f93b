"""Whether a pod may stand on a machine at all."""

from typing import Any

import pytest

from fleet.snapshot import PodSet
from fleet.snapshot.affinity import admits, selects, tolerates
from model.kinds import RequirementTerm, Taint, Toleration

GPU_TAINT = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")
SOFT = Taint(key="x", effect="PreferNoSchedule")
EXEC = Taint(key="maintenance", effect="NoExecute")


def tolerating(**fields: Any) -> Toleration:
    return Toleration.model_validate(fields)


@pytest.mark.parametrize(
    ("taints", "tolerations", "passes"),
    [
        ((), (), True),
        ((SOFT,), (), True),
        ((GPU_TAINT,), (), False),
        ((GPU_TAINT,), (tolerating(key="nvidia.com/gpu", operator="Exists"),), True),
        ((GPU_TAINT,), (tolerating(key="nvidia.com/gpu", value="present"),), True),
        ((GPU_TAINT,), (tolerating(key="nvidia.com/gpu", value="absent"),), False),
        ((GPU_TAINT,), (tolerating(key="nvidia.com/gpu", operator="Exists", effect="NoExecute"),), False),
        ((GPU_TAINT, EXEC), (tolerating(key="nvidia.com/gpu", operator="Exists"),), False),
        ((GPU_TAINT, EXEC), (tolerating(operator="Exists"),), True),
    ],
)
def test_taints(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...], passes: bool) -> None:
    assert tolerates(taints, tolerations) is passes


def term(key: str, operator: str, *values: str) -> RequirementTerm:
    return RequirementTerm.model_validate({"key": key, "operator": operator, "values": values})


@pytest.mark.parametrize(
    ("selector", "affinity", "passes"),
    [
        ({}, (), True),
        ({"zone": "a"}, (), True),
        ({"zone": "b"}, (), False),
        ({"rack": "1"}, (), False),
        ({}, ((term("zone", "In", "a", "c"),),), True),
        ({}, ((term("zone", "NotIn", "a"),),), False),
        ({}, ((term("zone", "In", "b"),), (term("size", "Gt", "3"),)), True),
        ({}, ((term("zone", "In", "a"), term("size", "Gt", "8")),), False),
        ({}, ((term("rack", "DoesNotExist"),),), True),
        ({"zone": "b"}, ((term("size", "Exists"),),), False),
    ],
)
def test_selector_and_affinity(selector: dict[str, str], affinity: Any, passes: bool) -> None:
    """The selector and any one of the terms; each term is a conjunction."""
    pods = PodSet("main", 1, {}, node_selector=selector, required_affinity=affinity)
    assert selects(pods, {"zone": "a", "size": "8"}) is passes


def test_the_flavors_tolerations_count_as_the_pods_own() -> None:
    assert not admits(PodSet("main", 1, {}), (), {}, (EXEC,))
    assert admits(PodSet("main", 1, {}), (tolerating(key="maintenance", operator="Exists"),), {}, (EXEC,))
