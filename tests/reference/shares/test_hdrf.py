"""Hierarchical DRF: the two repairs of the paper (Bhattacharya et al., SoCC'13), in the numbers Volcano tests with."""

import pytest

from tests.reference.shares.hdrf import HdrfNode, fill, path_key, refresh

G = 1_000_000_000


def leaf(name: str, **demand: float) -> HdrfNode:
    return HdrfNode(name, demand=demand)


def test_a_node_counts_its_children_rescaled() -> None:
    """Without rescaling the node of two unlike children would seem to hold twice as much as it does."""
    two = HdrfNode("two", children=[leaf("cpu", cpu=10), leaf("memory", memory=10 * G)])
    root = HdrfNode("root", children=[leaf("both", cpu=5, memory=5 * G), two])
    tasks = {
        ("both",): {"cpu": 1, "memory": G},
        ("two", "cpu"): {"cpu": 1},
        ("two", "memory"): {"memory": G},
    }
    fill(root, {"cpu": 10, "memory": 10 * G}, tasks)
    assert root.children[0].used == {"cpu": 5, "memory": 5 * G}
    assert [child.used for child in two.children] == [{"cpu": 5}, {"memory": 5 * G}]


@pytest.mark.parametrize("deeper", [False, True], ids=["two children", "one level more between"])
def test_a_blocked_child_does_not_hold_its_node_back(deeper: bool) -> None:
    """CPU is used up when each of three nodes has a third of it; memory still goes to the two that can use it."""
    cpu_and_memory = [leaf("cpu", cpu=30), leaf("memory", memory=30 * G)]
    third = HdrfNode("third", children=[HdrfNode("inner", children=cpu_and_memory)] if deeper else cpu_and_memory)
    second = HdrfNode("second", children=[leaf("cpu", cpu=30), leaf("memory", memory=30 * G)])
    root = HdrfNode("root", children=[leaf("first", cpu=30), second, third])
    below = ("third", "inner") if deeper else ("third",)
    tasks = {
        ("first",): {"cpu": 1},
        ("second", "cpu"): {"cpu": 1},
        ("second", "memory"): {"memory": G},
        (*below, "cpu"): {"cpu": 1},
        (*below, "memory"): {"memory": G},
    }
    fill(root, {"cpu": 30, "memory": 30 * G}, tasks)
    assert root.children[0].used == {"cpu": 10}
    assert [child.used for child in second.children] == [{"cpu": 10}, {"memory": 15 * G}]
    assert [child.used for child in cpu_and_memory] == [{"cpu": 10}, {"memory": 15 * G}]


@pytest.mark.parametrize(
    ("used", "demand", "blocked"),
    [
        pytest.param({"cpu": 2}, {"cpu": 5}, False, id="wants more and there is more"),
        pytest.param({"cpu": 5}, {"cpu": 5}, True, id="has all it wants"),
        pytest.param({"cpu": 2, "memory": 1}, {"cpu": 5, "memory": 1}, True, id="has all it wants of something"),
        pytest.param({}, {}, True, id="wants nothing"),
        pytest.param({}, {"gpu": 1}, True, id="wants what is used up"),
    ],
)
def test_who_is_blocked(used: dict[str, float], demand: dict[str, float], blocked: bool) -> None:
    branch = HdrfNode("x", used=used, demand=demand)
    refresh(HdrfNode("root", children=[branch]), {"cpu": 10, "memory": 10, "gpu": 0})
    assert branch.blocked is blocked


def test_weights_divide_and_blocked_nodes_come_last() -> None:
    heavy = HdrfNode("heavy", weight=4, used={"cpu": 4}, demand={"cpu": 9})
    light = HdrfNode("light", used={"cpu": 2}, demand={"cpu": 9})
    done = HdrfNode("done", used={"cpu": 1}, demand={"cpu": 1})
    root = HdrfNode("root", children=[light, done, heavy])
    refresh(root, {"cpu": 10})
    order = sorted((child.name for child in root.children), key=lambda name: path_key(root, (name,)))
    assert order == ["heavy", "light", "done"]
