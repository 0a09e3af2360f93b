"""The package data against the reference table it was condensed from, and against its own rules."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from model.mig import Impossible, feasible, mig_models, models_for_instance_gpu, resource_name
from tests.support.shared import shared_path


def reference() -> list[dict[str, Any]]:
    gpus: list[dict[str, Any]] = json.loads(shared_path("data/mig_profiles.json").read_text())["gpus"]
    return gpus


UNCERTAIN = {"rtx-pro-5000-blackwell-48gb"}
"""Placements deduced from the counts."""
OTHER_NAMES = {"gb200-189gb": "gb200-186gb"}
"""The same GPU under a driver that names its memory otherwise."""


def test_same_models() -> None:
    assert {gpu["id"] for gpu in reference()} | OTHER_NAMES.keys() | UNCERTAIN == set(mig_models())


def test_uncertain_models_have_the_profiles_of_the_user_guide() -> None:
    told = {
        gpu["id"]: gpu["profiles"] for gpu in json.loads(shared_path("data/mig_profiles.json").read_text())["uncertain"]
    }
    for name in UNCERTAIN:
        profiles = mig_models()[name].profiles.values()
        counts = [re.fullmatch(r"(\S+) \((?:max )?(\d+)\)", text) for text in told[name]]
        assert {profile.name: profile.most for profile in profiles} == {it[1]: int(it[2]) for it in counts if it}
        for profile in profiles:  # as many as are told do fit, alone
            assert not isinstance(feasible(mig_models()[name], {profile.name: profile.most}), Impossible)


@pytest.mark.parametrize(
    ("counts", "fits"),
    [
        ({"1g.12gb": 1, "1g.12gb-me": 3}, True),
        ({"1g.12gb+me": 1, "2g.24gb-me": 1, "1g.12gb-me": 1}, True),
        ({"1g.12gb": 1, "1g.12gb+gfx": 1}, False),
        ({"2g.24gb-me": 1, "1g.12gb-me": 2}, False),
        ({"4g.48gb": 1, "1g.12gb-me": 1}, False),
    ],
)
def test_rtx_pro_5000(counts: dict[str, int], fits: bool) -> None:
    found = feasible(mig_models()["rtx-pro-5000-blackwell-48gb"], counts)
    assert isinstance(found, Impossible) is not fits


def test_other_names_of_the_same_slices() -> None:
    for other, id_ in OTHER_NAMES.items():
        one, two = mig_models()[id_], mig_models()[other]
        assert one.device_ids == two.device_ids
        for mine, theirs in zip(one.profiles.values(), two.profiles.values(), strict=True):
            assert replace(theirs, name=mine.name) == mine
    gb200 = [name for name in mig_models()["gb200-189gb"].profiles if "+" not in name]
    assert gb200 == ["1g.24gb", "1g.47gb", "2g.47gb", "3g.95gb", "4g.95gb", "7g.189gb"]


@pytest.mark.parametrize(
    ("model", "profile", "gib"),
    [
        ("h200-141gb", "1g.18gb", 16.0),
        ("b200-180gb", "1g.23gb", 20.5),
        ("b200-180gb", "2g.45gb", 44.25),
        ("gb200-186gb", "1g.23gb", 20.0),
        ("gb200-189gb", "1g.24gb", 20.0),
        ("gb200-189gb", "1g.47gb", 45.5),
    ],
)
def test_memory_of_slices_as_listed(model: str, profile: str, gib: float) -> None:
    assert mig_models()[model].profiles[profile].memory_mib == gib * 1024


def test_same_profiles() -> None:
    for gpu in reference():
        model = mig_models()[gpu["id"]]
        assert (model.compute_slices, model.memory_slices, model.units) == (
            gpu["compute_slices"],
            gpu["memory_slices"],
            gpu["placement_units"],
        )
        assert set(model.profiles) == {profile["name"] for profile in gpu["profiles"]}
        for row in gpu["profiles"]:
            mine = model.profiles[row["name"]]
            assert (mine.resource, mine.compute_slices, mine.memory_slices, mine.most) == (
                row["resource_name"],
                row["compute_slices"],
                row["memory_slices"],
                row["max_instances"],
            )
            assert [{"start": start, "size": mine.size} for start in mine.starts] == row["placements"]
            if row["memory_mib_observed"]:
                assert mine.memory_mib == row["memory_mib_observed"]


def test_media_engines_bind_only_where_we_count_them() -> None:
    """On the seven-slice family no legal set of instances runs out of engines, so the table leaves them out."""
    from model.mig import every_layout

    for gpu in reference():
        if gpu["id"] not in {"a100-40gb", "a100-80gb", "h100-80gb"}:  # the only complete engine tables
            continue
        engines = {profile["name"]: profile["engines"] for profile in gpu["profiles"]}
        whole = max(engines.values(), key=lambda taken: taken["decoder"])
        model = mig_models()[gpu["id"]]
        for layout in every_layout(model):
            for engine, total in whole.items():
                assert sum(engines[name][engine] for name, _ in layout) <= total, (gpu["id"], layout, engine)


def test_every_memory_is_known_and_grows_with_the_slices() -> None:
    for model in mig_models().values():
        for profile in model.profiles.values():
            assert 0 < profile.memory_mib <= model.memory_gib * 1024
        by_slices = sorted((profile.memory_slices, profile.memory_mib) for profile in model.profiles.values())
        assert by_slices == sorted(by_slices, key=lambda pair: pair[1])


@pytest.mark.parametrize(
    ("name", "memory_mib", "expected"),
    [
        ("a100", 40960, ["a100-40gb"]),
        ("a100", 81920, ["a100-80gb"]),
        ("A100", None, ["a100-40gb", "a100-80gb"]),
        ("h100", 81920, ["h100-80gb"]),
        ("h200", 144384, ["h200-141gb"]),
        ("b200", 183359, ["b200-180gb"]),
        ("b300", 275040, ["b300-269gb"]),
        ("gb200", None, ["gb200-186gb", "gb200-189gb"]),
        ("rtx-pro-server-6000", 98304, ["rtx-pro-6000-blackwell-96gb"]),
        ("RTX PRO Server 6000", 98304, ["rtx-pro-6000-blackwell-96gb"]),
        ("l4", 22888, []),
        ("a10g", 22888, []),
        ("a100", 16384, []),
        ("", None, []),
    ],
)
def test_models_for_instance_gpu(name: str, memory_mib: int | None, expected: list[str]) -> None:
    found = models_for_instance_gpu(name, memory_mib)
    assert [model.id for model in found] == expected


def test_every_ec2_gpu_maps_to_at_most_one_model() -> None:
    types = json.loads(shared_path("data/instance_types_accelerated.json").read_text())["instance_types"]
    known = {gpu_type: gpu["id"] for gpu in reference() for gpu_type in gpu["aws_instance_types"] if gpu_type in types}
    assert len(known) >= 6
    for name, facts in types.items():
        for gpu in facts.get("gpus", ()):
            found = [model.id for model in models_for_instance_gpu(gpu["label_name"], gpu["memory_mib"])]
            assert found == ([known[name]] if name in known else []), name


@pytest.mark.parametrize(
    ("profile", "resource"),
    [
        ("1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("1g.5gb+me", "nvidia.com/mig-1g.5gb.me"),
        ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
        ("1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
        ("1g.24gb+gfx", "nvidia.com/mig-1g.24gb.gfx"),
    ],
)
def test_resource_name(profile: str, resource: str) -> None:
    assert resource_name(profile) == resource
