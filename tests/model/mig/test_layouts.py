"""A layout on a machine: resources, label value, mig-parted file."""

import re

import pytest

from model.kinds import MigLayout
from model.mig import LayoutMismatch, config_name, layout_counts, mig_parted_config, with_carried
from model.mig.parted import read_mig_parted


def layout(models: dict[str, list[dict[str, object]]], name: str = "mixed") -> MigLayout:
    spec = {"models": models}
    return MigLayout.model_validate({"apiVersion": "muster.dev/v1alpha1", "metadata": {"name": name}, "spec": spec})


HALF = [{"devices": [0, 1, 2, 3], "profiles": {}}, {"devices": [4, 5, 6, 7], "profiles": {"1g.10gb": 7}}]


@pytest.mark.parametrize(
    ("groups", "gpus", "expected"),
    [
        ([{"profiles": {"1g.10gb": 7}}], 8, {"nvidia.com/mig-1g.10gb": 56}),
        ([{"profiles": {}}], 8, {"nvidia.com/gpu": 8}),
        (HALF, 8, {"nvidia.com/gpu": 4, "nvidia.com/mig-1g.10gb": 28}),
        (
            [{"profiles": {"3g.40gb": 1, "1g.10gb+me": 1}}],
            1,
            {"nvidia.com/mig-1g.10gb.me": 1, "nvidia.com/mig-3g.40gb": 1},
        ),
    ],
)
def test_layout_counts(groups: list[dict[str, object]], gpus: int, expected: dict[str, int]) -> None:
    assert layout_counts(layout({"h100-80gb": groups}).spec.models["h100-80gb"], gpus) == expected


@pytest.mark.parametrize("gpus", [1, 4, 7, 9, 16])
def test_groups_must_name_every_gpu_once(gpus: int) -> None:
    with pytest.raises(LayoutMismatch):
        layout_counts(layout({"h100-80gb": HALF}).spec.models["h100-80gb"], gpus)


def test_groups_must_not_overlap() -> None:
    twice = layout({"h100-80gb": [{"devices": [0, 1]}, {"devices": [1]}]})
    with pytest.raises(LayoutMismatch):
        layout_counts(twice.spec.models["h100-80gb"], 2)


def test_config_file_is_what_mig_parted_accepts() -> None:
    one = layout({"h100-80gb": HALF}, "half")
    config = mig_parted_config([one])
    assert config == {
        "version": "v1",
        "mig-configs": {
            config_name(one): [
                {"devices": [0, 1, 2, 3], "mig-enabled": False},
                {"devices": [4, 5, 6, 7], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
            ],
            "all-disabled": [{"devices": "all", "mig-enabled": False}],
            "all-enabled": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
        },
    }
    assert read_mig_parted(config).keys() == config["mig-configs"].keys()


OLD = [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 3}}]


@pytest.mark.parametrize(
    ("published", "carried", "kept"),
    [
        pytest.param({"mig-configs": {"old-1": OLD, "old-2": OLD}}, {"old-1"}, ["old-1"], id="what a node carries"),
        pytest.param({"mig-configs": {"old-1": OLD}}, {"never-there"}, [], id="what is not there cannot be kept"),
        pytest.param({"mig-configs": {"a": OLD, "b": [{}]}}, {"a", "b"}, ["a"], id="what mig-parted would refuse"),
        pytest.param({"mig-configs": {"all-disabled": OLD}}, {"all-disabled"}, [], id="what every file has is ours"),
        pytest.param({"mig-configs": [OLD]}, {"a"}, [], id="no mapping"),
        pytest.param("scribbled", {"a"}, [], id="no file"),
        pytest.param(None, {"a"}, [], id="nothing"),
    ],
)
def test_what_nodes_still_carry_stays_in_the_file(published: object, carried: set[str], kept: list[str]) -> None:
    config = mig_parted_config([layout({"h100-80gb": HALF}, "half")])
    merged = with_carried(config, published, carried)
    assert sorted(merged["mig-configs"].keys() - config["mig-configs"].keys()) == kept
    assert merged["mig-configs"] == {**dict.fromkeys(kept, OLD), **config["mig-configs"]}


def test_several_models_are_told_apart_by_pci_id() -> None:
    both = layout({"a100-80gb": [{"profiles": {"7g.80gb": 1}}], "h100-80gb": [{"profiles": {"1g.10gb": 7}}]})
    entries = mig_parted_config([both])["mig-configs"][config_name(both)]
    assert [entry["device-filter"] for entry in entries] == [
        ["0x20B210DE", "0x20B510DE", "0x20F310DE", "0x20F510DE"],
        ["0x233010DE", "0x233110DE", "0x232210DE", "0x232410DE"],
    ]


def test_name_follows_the_content_and_is_a_label_value() -> None:
    first = layout({"h100-80gb": [{"profiles": {"1g.10gb": 7}}]}, "a" * 63)
    second = layout({"h100-80gb": [{"profiles": {"1g.10gb": 6}}]}, "a" * 63)
    assert config_name(first) == config_name(first.model_copy())
    assert config_name(first) != config_name(second)
    for one in (first, second):
        assert len(config_name(one)) == 63
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", config_name(one))


def test_order_of_profiles_does_not_change_the_name() -> None:
    one = layout({"h100-80gb": [{"profiles": {"3g.40gb": 1, "1g.10gb": 4}}]})
    other = layout({"h100-80gb": [{"profiles": {"1g.10gb": 4, "3g.40gb": 1}}]})
    assert config_name(one) == config_name(other)
