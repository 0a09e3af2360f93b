"""What the device plugin is told of a pool's sharing, and under which name."""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from model.gpu_sharing import plugin_config_name, plugin_configs, with_carried_configs
from model.kinds.node_pool import Sharing
from model.pools import pool_hash
from providers.sim.controllers.sharing import read_plugin_config
from tests.support.fleets import FleetBuilder


def sharing(**said: Any) -> Sharing:
    return Sharing.model_validate(said)


def four(**said: Any) -> dict[str, Any]:
    return {"replicas": 4, **said}


@pytest.mark.parametrize(
    ("said", "name", "resource", "one_each"),
    [
        ({}, "", "nvidia.com/gpu", False),
        ({"mig": {"layouts": ["x"]}}, "", "nvidia.com/gpu", False),
        ({"timeSlicing": four()}, "time-slicing-4", "nvidia.com/gpu", False),
        ({"timeSlicing": four(failRequestsGreaterThanOne=False)}, "time-slicing-4", "nvidia.com/gpu", False),
        ({"timeSlicing": four(renameByDefault=True)}, "time-slicing-4-renamed", "nvidia.com/gpu.shared", False),
        (
            {"timeSlicing": four(renameByDefault=True, failRequestsGreaterThanOne=True)},
            "time-slicing-4-renamed-one-each",
            "nvidia.com/gpu.shared",
            True,
        ),
        ({"mps": four()}, "mps-4", "nvidia.com/gpu", True),
        ({"mps": four(failRequestsGreaterThanOne=True)}, "mps-4", "nvidia.com/gpu", True),
        ({"mps": four(renameByDefault=True)}, "mps-4-renamed", "nvidia.com/gpu.shared", True),
    ],
)
def test_a_way_of_sharing_has_a_name_and_offers_a_resource(
    said: dict[str, Any], name: str, resource: str, *, one_each: bool
) -> None:
    it = sharing(**said)
    assert (plugin_config_name(it), it.resource, it.one_each) == (name, resource, one_each)


@pytest.mark.parametrize("way", ["timeSlicing", "mps"])
@pytest.mark.parametrize("renamed", [False, True])
def test_the_device_plugin_reads_what_is_written(way: str, *, renamed: bool) -> None:
    it = sharing(**{way: four(renameByDefault=renamed)})
    [(name, text)] = plugin_configs([it, it, sharing()]).items()
    read = read_plugin_config(text)
    assert name.startswith(read.strategy)
    assert (read.replicas, read.renamed) == ({"nvidia.com/gpu": 4}, renamed)
    assert read.offered("nvidia.com/gpu") == it.resource
    assert yaml.safe_load(text)["version"] == "v1"


def test_mps_never_gives_several_replicas() -> None:
    with pytest.raises(ValidationError, match="failRequestsGreaterThanOne cannot be false"):
        sharing(mps=four(failRequestsGreaterThanOne=False))


def test_what_nodes_carry_stays_and_nothing_else() -> None:
    published = {"time-slicing-2": "old", "mps-2": "gone", "mine": "x"}
    found = with_carried_configs({"mps-4": "new"}, published, {"time-slicing-2", "time-slicing-3"})
    assert found == {"mps-4": "new", "time-slicing-2": "old"}


def test_fields_that_are_not_said_do_not_change_the_hash() -> None:
    def hashed(**said: Any) -> str:
        return pool_hash(FleetBuilder().pool(sharing={"timeSlicing": four(**said)}).build().node_pools["h100"])

    assert hashed() == hashed(renameByDefault=False)
    assert len({hashed(), hashed(renameByDefault=True), hashed(failRequestsGreaterThanOne=True)}) == 3


def test_dra_changes_the_hash_of_pools_that_say_it_alone() -> None:
    def hashed(**said: Any) -> str:
        return pool_hash(FleetBuilder().pool(sharing=said).build().node_pools["h100"])

    assert len({hashed(), hashed(dra={}), hashed(dra={"dynamicMig": True})}) == 3
    assert hashed(dra={"consumableShares": 4}) == hashed(dra={}), "the driver is told, and no machine is born with it"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"dra": {}, "timeSlicing": four()}, "timeSlicing and mps are the device plugin's"),
        ({"dra": {}, "mps": four()}, "timeSlicing and mps are the device plugin's"),
        ({"dra": {"dynamicMig": True}, "mig": {"layouts": ["x"]}}, "leave mig out"),
        ({"dra": {"consumableShares": 0}}, "greater than or equal to 1"),
        ({"dra": {"consumableShares": "half"}}, "'unlimited' or 'memory'"),
    ],
)
def test_what_does_not_go_with_dra(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        sharing(**said)


def test_layouts_go_with_dra() -> None:
    assert not sharing(dra={}, mig={"layouts": ["x"]}).dynamic_mig
