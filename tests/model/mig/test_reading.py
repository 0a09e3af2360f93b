"""Files of mig-parted: what mig-parted refuses, and what the rest says of each GPU model."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from model.kinds import MigLayout
from model.loader import inspect
from model.mig import config_name, every_layout, mig_models, mig_parted_config
from model.mig.parted import InvalidMigParted, read_mig_parted
from model.mig.reading import UnreadableConfig, layout_of
from model.problem import Code

A100_40, A100_80 = "0x20B010DE", "0x20B210DE"


def entry(devices: object = "all", filters: object = None, **profiles: int) -> dict[str, Any]:
    """`g1_5` is 1g.5gb."""
    named = {f"{name[1]}g.{name.partition('_')[2]}gb": count for name, count in profiles.items()}
    made = {"devices": devices, "mig-enabled": bool(named)} | ({"mig-devices": named} if named else {})
    return made | ({"device-filter": filters} if filters is not None else {})


def said(*entries: dict[str, Any], name: str = "c") -> dict[str, list[tuple[object, dict[str, int]]]] | None:
    layout = layout_of(name, read_mig_parted({"version": "v1", "mig-configs": {name: list(entries)}})[name])
    if layout is None:
        return None
    return {
        model: [(group.devices, group.profiles) for group in groups] for model, groups in layout.spec.models.items()
    }


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([entry(g1_5=7)], {"a100-40gb": [("all", {"1g.5gb": 7})]}, id="the GPU that can be cut so"),
        pytest.param(
            [entry(g1_10=7)],
            {"a100-80gb": [("all", {"1g.10gb": 7})], "h100-80gb": [("all", {"1g.10gb": 7})]},
            id="every GPU that can be cut so",
        ),
        pytest.param(
            [entry(filters=A100_40.lower(), g1_10=4), entry(filters=[A100_80, "0x99990000"], g1_10=7)],
            {"a100-40gb": [("all", {"1g.10gb": 4})], "a100-80gb": [("all", {"1g.10gb": 7})]},
            id="by PCI id, in any case; GPUs that nobody knows do not count",
        ),
        pytest.param(
            [entry([0, 0, 1]), entry([2, 1], g1_5=7)],
            {"a100-40gb": [((0,), {}), ((1, 2), {"1g.5gb": 7})]},
            id="the last entry that speaks of a GPU counts",
        ),
        pytest.param([entry([0]), entry(g1_5=7)], {"a100-40gb": [("all", {"1g.5gb": 7})]}, id="and it may name all"),
        pytest.param(
            [entry([0], g1_5=7), entry([])],
            {"a100-40gb": [((0,), {"1g.5gb": 7})]},
            id="an entry of no GPU says nothing",
        ),
        pytest.param(
            [entry(filters="0x294110DE", g1_24=7)],
            {"gb200-189gb": [("all", {"1g.24gb": 7})]},
            id="of two names of a GPU the one whose profiles it names",
        ),
    ],
)
def test_what_a_configuration_says(entries: list[dict[str, Any]], expected: object) -> None:
    assert said(*entries) == expected


def test_gpus_that_stay_whole_are_all_gpus() -> None:
    assert said(entry()) == {model: [("all", {})] for model in mig_models()}


def test_what_every_file_has_is_no_layout() -> None:
    assert said(entry(), name="all-disabled") is None
    assert said({"devices": "all", "mig-enabled": True, "mig-devices": {}}, name="all-enabled") is None


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([entry(g9_5=7)], "no GPU that Muster knows"),
        ([entry(filters=A100_40, g1_10=7)], "at most 4 fit"),
        ([entry(filters="0x99990000", g1_5=7)], "no GPU that Muster knows has the id 0x99990000"),
        ([entry(filters=f"{A100_40}:0x134F10DE", g1_5=7)], "not by subsystem"),
        ([entry(), entry([0], g1_5=7)], "what is left depends"),
        ([entry([-1], g1_5=7)], "0 to 15"),
        ([{"devices": "all", "mig-enabled": True, "mig-devices": {}}], "nothing cut"),
        ([{"devices": "all", "mig-enabled": True, "mig-devices": {"1c.3g.20gb": 2}}], "no GPU that Muster knows"),
    ],
)
def test_what_no_layout_can_say(entries: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UnreadableConfig, match=message):
        said(*entries)


@pytest.mark.parametrize(("name", "message"), [("all-disabled", "every file has"), ("All_Small", "a name is at most")])
def test_names_that_are_refused(name: str, message: str) -> None:
    with pytest.raises(UnreadableConfig, match=message):
        said(entry(g1_5=7), name=name)


@given(st.data())
def test_a_layout_comes_back_as_it_was(data: st.DataObject) -> None:
    model = mig_models()[data.draw(st.sampled_from(["a30-24gb", "a100-40gb", "h100-80gb"]))]
    cuts = [dict.fromkeys((name for name, _ in cut), 1) for cut in every_layout(model)]
    groups = [{"devices": [index], "profiles": data.draw(st.sampled_from([{}, *cuts]))} for index in range(3)]
    groups = groups if data.draw(st.booleans()) else [{"profiles": groups[0]["profiles"]}]
    document = {"apiVersion": "muster.dev/v1alpha1", "metadata": {"name": "x"}, "spec": {"models": {model.id: groups}}}
    layout = MigLayout.model_validate(document)
    name = config_name(layout)
    back = layout_of(name, read_mig_parted(mig_parted_config([layout]))[name])
    assert back is not None
    assert back.spec.models[model.id] == layout.spec.models[model.id]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(["devices", "device-filter", "mig-enabled", "mig-devices", "x"]), JSON, max_size=5
)


@given(JSON | st.builds(lambda it: {"version": "v1", "mig-configs": {"c": [it]}}, FIELDS))
def test_whatever_a_file_says_it_is_read_or_refused(document: object) -> None:
    try:
        for name, entries in read_mig_parted(document).items():
            layout_of(name, entries)
    except (InvalidMigParted, UnreadableConfig):
        pass


# -- in the repository ------------------------------------------------------------------------------------------------

FILE = """\
version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  small:
  - devices: all
    mig-enabled: true
    mig-devices: {1g.5gb: 7}
  half:
  - {devices: [0, 1, 2, 3], mig-enabled: false}
  - {devices: [4, 5, 6, 7], mig-enabled: true, mig-devices: {1g.5gb: 7}}
"""
POOL = """\
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {name: a100}
spec: {instanceTypes: [p4d.24xlarge], gpu: {models: [a100]}, sharing: {mig: {layouts: [%s]}}}
"""


def test_a_file_in_the_repository_is_a_layout_each_configuration() -> None:
    loaded = inspect({"mig.yaml": FILE.encode(), "pool.yaml": (POOL % "half").encode()})
    assert loaded.problems == ()
    assert loaded.fleet is not None
    assert list(loaded.fleet.mig_layouts) == ["half", "small"]
    assert (
        yaml.safe_load(FILE)["mig-configs"]["small"]
        in mig_parted_config(loaded.fleet.mig_layouts.values())["mig-configs"].values()
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "code", "message"),
    [
        ("mig-enabled: true\n", "mig-enabled: maybe\n", 7, Code.INVALID_VALUE, "expected true or false"),
        ("    mig-enabled: true\n", "    mig-mode: true\n", 7, Code.INVALID_VALUE, "unknown field"),
        ("version: v1", "version: v2", 1, Code.INVALID_VALUE, "must be the text v1"),
        ("1g.5gb: 7}\n  half", "1g.5gb: 9}\n  half", 5, Code.UNSUPPORTED, "no GPU that Muster knows"),
        ("  small", "  Small", 5, Code.UNSUPPORTED, "a name is at most"),
        ("[0, 1, 2, 3]", "all", 10, Code.UNSUPPORTED, "what is left depends"),
        ("[0, 1, 2, 3]", "[0, 1, 2]", 10, Code.IMPOSSIBLE_MIG_LAYOUT, "no group names device 3"),
    ],
)
def test_what_is_wrong_is_told_at_its_line(old: str, new: str, line: int, code: Code, message: str) -> None:
    (problem,) = inspect({"mig.yaml": FILE.replace(old, new, 1).encode()}).problems
    assert (problem.line, problem.code) == (line, code)
    assert message in problem.message


def test_a_name_that_a_layout_has_already() -> None:
    layout = "apiVersion: muster.dev/v1alpha1\nkind: MigLayout\nmetadata: {name: half}\n"
    layout += "spec: {models: {a100-40gb: [{profiles: {1g.5gb: 7}}]}}\n"
    loaded = inspect({"mig.yaml": FILE.encode(), "a.yaml": layout.encode(), "p.yaml": (POOL % "half").encode()})
    (problem,) = loaded.problems
    assert (problem.code, problem.file) == (Code.DUPLICATE_NAME, "mig.yaml")
    assert "a.yaml:3" in problem.message


def test_a_pool_names_a_configuration_that_is_broken() -> None:
    loaded = inspect(
        {"mig.yaml": FILE.replace("1g.5gb: 7}\n  half", "1g.5gb: 9}\n  half").encode()}
        | {"pool.yaml": (POOL % "small").encode()}
    )
    (problem,) = loaded.problems
    assert problem.code is Code.UNSUPPORTED
