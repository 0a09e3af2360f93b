"""The example fleets load without a problem, and the reference fleet is what its README says."""

from pathlib import Path

import pytest

from model import report
from model.fleet import Fleet
from model.loader import clusters_in, inspect, load
from model.mig import config_name, layout_resources, mig_parted_config
from model.pools import pool_requirements

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def reference() -> Fleet:
    return load(files(EXAMPLES / "reference"))


@pytest.mark.parametrize("name", ["karpenter", "kueue", "minimal", "reference", "upgrade-freeze"])
def test_loads_without_a_problem(name: str) -> None:
    loaded = inspect(files(EXAMPLES / name))
    assert loaded.problems == (), report.text(loaded.problems)
    assert loaded.fleet is not None


@pytest.mark.parametrize(
    ("cluster", "pools", "windows"),
    [
        ("virginia", {"h100": 16, "l4": None}, {"nights": "America/New_York", "year-end": "UTC"}),
        ("frankfurt", {"l4": None}, {"nights": "Europe/Berlin"}),
    ],
)
def test_clusters(cluster: str, pools: dict[str, int | None], windows: dict[str, str]) -> None:
    loaded = inspect(files(EXAMPLES / "clusters"), cluster=cluster)
    assert loaded.problems == (), report.text(loaded.problems)
    assert loaded.fleet is not None
    assert {name: it.spec.limits.nodes for name, it in loaded.fleet.node_pools.items()} == pools
    assert {it.name: it.time_zone for it in loaded.fleet.policy.spec.freeze_windows} == windows
    assert not list(clusters_in(files(EXAMPLES / "clusters")).unread())


# a patch is no whole document, which an editor would miss the rest of
WHOLE = [path for path in sorted(EXAMPLES.rglob("*.yaml")) if path.name != "patches.yaml"]


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_the_modeline_leads_to_the_schema(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    assert (path.parent / first.removeprefix(prefix)).resolve() == EXAMPLES.parent / "schemas" / "fleet.json"


def test_reference_names(reference: Fleet) -> None:
    assert list(reference.node_pools) == ["a100-mig", "gpu-spot", "h100-full", "h100-mig"]
    assert {"org", "prod", "research", "batch"} == set(reference.teams)
    assert {"prod", "research", "batch"} <= set(reference.queues)
    values = {name: priority.spec.value for name, priority in reference.priority_classes.items()}
    assert values == {"critical": 1000, "high": 500, "normal": 100, "spot": 10}
    assert all(team.spec.namespaces == (name,) for name, team in reference.teams.items() if name != "org")


def test_reference_pools_can_be_asked_for(reference: Fleet) -> None:
    for pool in reference.node_pools.values():
        assert pool_requirements(pool).empty_keys() == ()


@pytest.mark.parametrize(
    ("layout", "model", "resources"),
    [
        ("all-3g.40gb", "a100-80gb", {"nvidia.com/mig-3g.40gb": 16}),
        ("all-1g.10gb", "a100-80gb", {"nvidia.com/mig-1g.10gb": 56}),
        (
            "h100-mixed",
            "h100-80gb",
            {"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8},
        ),
    ],
)
def test_reference_layouts(reference: Fleet, layout: str, model: str, resources: dict[str, int]) -> None:
    assert layout_resources(reference.mig_layouts[layout], model, 8) == resources


def test_reference_mig_config(reference: Fleet) -> None:
    layouts = reference.mig_layouts.values()
    assert set(mig_parted_config(layouts)["mig-configs"]) == {
        *(config_name(layout) for layout in layouts),
        *("all-disabled", "all-enabled"),
    }
