"""Repositories of several clusters: what each is made of, and how patches change it, with every place kept."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.loader import ClusterFiles, InvalidFleet, LoaderLimits, clusters_in, inspect, load
from model.loader.parse import parse
from model.loader.patching import apply_patches
from model.loader.source import SourceFile
from model.loader.tree import Document, YamlNode
from model.problem import Code, Problem

HEAD = "apiVersion: muster.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"


def doc(kind: str, name: str, spec: str = "") -> str:
    return HEAD.format(kind=kind, name=name) + spec


def pool(spec: str) -> str:
    return doc("NodePool", "h100", spec)


def windows(item: str) -> str:
    return doc("FleetPolicy", "p", f"spec:\n  freezeWindows:\n    - {item}\n")


POOL = doc(
    "NodePool", "h100", "spec:\n  instanceTypes: [p5.48xlarge]\n  limits:\n    nodes: 4\n    usdPerHour: 100.0\n"
)
POLICY = doc(
    "FleetPolicy",
    "p",
    "spec:\n"
    "  freezeWindows:\n"
    "    - {name: nights, schedule: 0 22 * * *, duration: 8h}\n"
    "    - {name: year-end, schedule: 0 0 24 12 *, duration: 48h}\n",
)
CLUSTER = doc("Cluster", "a", "spec:\n  bases: [../../base]\n  patches: [patches.yaml]\n")
FILES = {
    "base/pools.yaml": POOL,
    "base/policy.yaml": POLICY,
    "clusters/a/cluster.yaml": CLUSTER,
    "clusters/b/cluster.yaml": doc("Cluster", "b", "spec:\n  bases: [../../base]\n"),
}


def raw(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


def problems(patch: str = "", cluster: str = "a", **files: str) -> list[Problem]:
    """What is wrong with the cluster, with a patch of its own, and other files by path."""
    every = FILES | {"clusters/a/patches.yaml": patch or "# none\n"} | files
    return list(inspect(raw(every), cluster=cluster).problems)


def test_each_cluster_reads_its_bases_and_its_own_folder() -> None:
    own = {"clusters/a/patches.yaml": "", "clusters/a/sub/team.yaml": doc("Team", "x", "spec: {namespaces: [x]}\n")}
    files = raw(FILES | own)
    a, b = load(files, cluster="a"), load(files, cluster="b")
    assert (set(a.teams), set(b.teams)) == ({"x"}, set())
    assert a.cluster is not None
    assert a.cluster.key == "a"
    assert a.node_pools == b.node_pools
    assert a.digest != b.digest


def test_what_is_patched_and_what_is_not() -> None:
    patch = doc("NodePool", "h100", "spec: {limits: {nodes: 9}, zones: [us-east-1a]}\n")
    fleet = load(raw(FILES | {"clusters/a/patches.yaml": patch}), cluster="a")
    spec = fleet.node_pools["h100"].spec
    assert (spec.limits.nodes, spec.limits.usd_per_hour, spec.zones) == (9, 100.0, ("us-east-1a",))
    assert spec.instance_types == ("p5.48xlarge",)
    untouched = load(raw(FILES | {"clusters/a/patches.yaml": patch}), cluster="b").node_pools["h100"].spec
    assert (untouched.limits.nodes, untouched.zones) == (4, ())


@pytest.mark.parametrize(
    ("spec", "windows"),
    [
        ("{freezeWindows: [{name: nights, duration: 2h}]}", {"nights": 7200, "year-end": 172800}),
        (
            "{freezeWindows: [{name: more, schedule: '@daily', duration: 1h}]}",
            {"nights": 28800, "year-end": 172800, "more": 3600},
        ),
        ("{freezeWindows: [{name: nights, $patch: delete}]}", {"year-end": 172800}),
        ("{freezeWindows: [{$patch: replace}, {name: n, schedule: '@daily', duration: 1h}]}", {"n": 3600}),
        ("{freezeWindows: null}", {}),
        ("{$patch: replace}", {}),
    ],
)  # fmt: skip
def test_lists_of_named_items_are_merged_by_name(spec: str, windows: dict[str, float]) -> None:
    patch = doc("FleetPolicy", "p", f"spec: {spec}\n")
    fleet = load(raw(FILES | {"clusters/a/patches.yaml": patch}), cluster="a")
    assert {it.name: it.duration for it in fleet.policy.spec.freeze_windows} == windows


def test_a_patch_may_remove_an_object_and_patches_follow_each_other() -> None:
    more = doc("NodePool", "spare", "spec: {instanceTypes: [p5.48xlarge]}\n")
    first = (
        doc("NodePool", "h100", "spec: {limits: {nodes: 9}}\n") + "---\n" + doc("NodePool", "spare", "$patch: delete\n")
    )
    cluster = doc("Cluster", "a", "spec: {bases: [../../base], patches: [patches.yaml, ../../shared/late.yaml]}\n")
    late = doc("NodePool", "h100", "spec: {limits: {nodes: 11}}\n")
    files = FILES | {
        "base/more.yaml": more, "clusters/a/patches.yaml": first, "clusters/a/cluster.yaml": cluster,
        "shared/late.yaml": late,
    }  # fmt: skip
    fleet = load(raw(files), cluster="a")
    assert set(fleet.node_pools) == {"h100"}
    assert fleet.node_pools["h100"].spec.limits.nodes == 11
    assert set(fleet.files["nodepool/h100"]) == {"base/pools.yaml", "clusters/a/patches.yaml", "shared/late.yaml"}
    assert set(fleet.files["nodepool/spare"]) == {"base/more.yaml", "clusters/a/patches.yaml"}


@pytest.mark.parametrize(
    ("patch", "line", "code", "says"),
    [
        (doc("NodePool", "h10", "spec: {}\n"), 3, Code.DANGLING_REFERENCE, "no base declares the NodePool 'h10'"),
        ("kind: NodePool\nmetadata: {name: h100}\n", 1, Code.MISSING_KEY, "does not say what it changes"),
        (pool("spec:\n  limits:\n    nodez: 5\n"), 6, Code.UNKNOWN_KEY, "unknown key 'nodez'"),
        (pool("spec:\n  limits:\n    nodes: many\n"), 6, Code.INVALID_VALUE, "must be"),
        (pool("spec:\n  zones: null\n"), 5, Code.INVALID_VALUE, "nothing to remove"),
        (pool("spec:\n  limits:\n    $patch: keep\n"), 6, Code.INVALID_VALUE, "has no meaning"),
        (pool("spec:\n  $retainKeys: [a]\n"), 5, Code.INVALID_VALUE, "has no meaning"),
        (pool("spec: {}\n$patch: delete\n"), 1, Code.INVALID_VALUE, "says nothing else"),
        (pool("spec:\n  instanceTypes:\n    - {$patch: delete}\n"), 6, Code.INVALID_VALUE, "no meaning"),
        (windows("{name: x, $patch: delete}"), 6, Code.INVALID_VALUE, "'x' to remove"),
        (windows("{duration: 1h}"), 6, Code.INVALID_VALUE, "their name"),
        (windows("{name: nights, schedule: 99 * * * *}"), 6, Code.INVALID_SCHEDULE, "minute"),
        (pool("spec: [\n"), 5, Code.YAML_SYNTAX, "not YAML"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_patch_is_shown_in_the_patch(patch: str, line: int, code: Code, says: str) -> None:
    found = [it for it in problems(patch) if it.severity == "error"]
    assert [(it.file, it.line, it.code) for it in found] == [("clusters/a/patches.yaml", line, code)]
    assert says in str(found[0])
    assert patch.splitlines()[min(line, len(patch.splitlines())) - 1] in found[0].excerpt
    assert problems(patch, "b") == [], "another cluster does not care"


def test_what_is_wrong_in_a_base_is_shown_in_the_base_though_it_is_patched() -> None:
    base = POOL.replace("nodes: 4", "nodes: four")
    patch = doc("NodePool", "h100", "spec: {limits: {usdPerHour: 7.0}}\n")
    found = problems(patch, **{"base/pools.yaml": base})
    assert [(it.file, it.line, it.path) for it in found] == [("base/pools.yaml", 7, "spec.limits.nodes")]


def test_a_required_key_that_a_patch_takes_away_is_missed_where_the_rest_stands() -> None:
    found = problems(doc("FleetPolicy", "p", "spec: {freezeWindows: [{name: nights, schedule: null}]}\n"))
    assert [(it.file, it.line, it.code) for it in found] == [("base/policy.yaml", 6, Code.MISSING_KEY)]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("{bases: [../../../elsewhere]}", "leads out of what is read"),
        ("{bases: [/etc]}", "relative to this file"),
        ("{bases: ['https://example.com/base']}", "relative to this file"),
        ("{bases: ['..\\base']}", "relative to this file"),
        ("{bases: [../../.github]}", "begins with a dot"),
        ("{bases: ['']}", "must not be empty"),
        ("{bases: ['../..']}", "would hold itself"),
        ("{bases: ['..']}", "would hold itself"),
        ("{bases: [own]}", "the cluster's own folder"),
        ("{bases: [../b]}", "a base holds no cluster of its own; there is one in clusters/b"),
        ("{bases: [../../base, ../../base]}", "overlaps with the base base"),
        ("{bases: [../../base, ../../base/sub]}", "overlaps with the base base"),
        ("{bases: [../../nowhere]}", "no .yaml or .yml file in nowhere"),
        ("{patches: [nowhere.yaml]}", "no file clusters/a/nowhere.yaml"),
        ("{patches: [cluster.yaml]}", "read already"),
        ("{patches: [patches.yaml, patches.yaml]}", "read already"),
        ("{bases: [../../base], patches: [../../base/pools.yaml]}", "a patch stands in no base"),
        ("{bases: []\n, more: 1}", "unknown key 'more'"),
        ("{interval: 1s}", "between 5s and 24h"),
        ("{interval: Never}", "between 5s and 24h"),
        ("{suspendReason: x}", "suspendReason is the reason of"),
    ],
)
def test_where_bases_and_patches_may_not_be(spec: str, says: str) -> None:
    more = {"clusters/a/own/x.yaml": "# x\n", "base/sub/y.yaml": "# y\n", "clusters/a/patches.yaml": "# p\n"}
    files = FILES | more | {"clusters/a/cluster.yaml": doc("Cluster", "a", f"spec: {spec}\n")}
    found = inspect(raw(files), cluster="a").problems
    assert [it.file for it in found] == ["clusters/a/cluster.yaml"]
    assert says in str(found[0])
    assert inspect(raw(files), cluster="b").problems == (), "the other cluster goes on"


def test_clusters_that_are_not_told_apart() -> None:
    twice = FILES | {"clusters/c/cluster.yaml": doc("Cluster", "a")}
    assert [it.code for it in inspect(raw(twice), cluster="a").problems] == [Code.DUPLICATE_NAME]
    assert inspect(raw(twice), cluster="b").fleet is not None
    inside = FILES | {"clusters/a/c/cluster.yaml": doc("Cluster", "c"), "clusters/a/patches.yaml": ""}
    assert "another cluster stands in this one's folder" in str(inspect(raw(inside), cluster="a").problems[0])


def test_which_cluster_is_meant() -> None:
    with pytest.raises(InvalidFleet, match=r"holds several clusters: 'a', 'b'.*--cluster"):
        load(raw(FILES | {"clusters/a/patches.yaml": ""}))
    with pytest.raises(InvalidFleet, match="no Cluster is named 'c'; there are 'a', 'b'"):
        load(raw(FILES), cluster="c")
    only = {name: text for name, text in FILES.items() if "/a/" not in name}
    assert load(raw(only)) == load(raw(only), cluster="b")


def test_a_cluster_file_that_cannot_be_read_does_not_make_one_fleet_of_all() -> None:
    broken = {"clusters/a/cluster.yaml": CLUSTER + "  : [", "base/pools.yaml": POOL}
    assert [it.file for it in inspect(raw(broken), cluster="a").problems] == ["clusters/a/cluster.yaml"]
    several = FILES | {"clusters/a/cluster.yaml": CLUSTER + "---\n" + POOL}
    found = inspect(raw(several), cluster="a").problems
    assert any(it.code is Code.MISPLACED and it.line == 8 for it in found)


def test_a_cluster_in_another_file_is_refused() -> None:
    found = inspect(raw({"main.yaml": CLUSTER})).problems
    assert [(it.file, it.line, it.code) for it in found] == [("main.yaml", 2, Code.MISPLACED)]


def test_a_repository_without_a_cluster_is_as_it_was() -> None:
    files = raw({"base/pools.yaml": POOL, "x/cluster.yaml": doc("Team", "x", "spec: {namespaces: [x]}\n")})
    fleet = load(files, cluster="a")
    assert fleet == load(files)
    assert (fleet.cluster, fleet.digest, set(fleet.teams)) == (None, "", {"x"})
    theirs = {"x/cluster.yaml": b"apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\nmetadata: {name: x}\n"}
    assert not clusters_in(theirs).any


def test_files_that_nobody_reads_are_told_of() -> None:
    files = raw(FILES | {"clusters/a/patches.yaml": "", "old/pools.yaml": POOL, "README.md": "# x"})
    found = list(clusters_in(files).unread())
    assert [(it.file, it.severity, it.code) for it in found] == [("old/pools.yaml", "warning", Code.UNUSED)]


def test_only_changes_of_its_own_files_are_changes_of_a_cluster() -> None:
    before = FILES | {"clusters/a/patches.yaml": "# none\n"}

    def digests(**changed: str) -> list[bool]:
        after = raw(before | changed)
        return [load(after, cluster=it).digest != load(raw(before), cluster=it).digest for it in "ab"]

    assert digests() == [False, False]
    assert digests(**{"clusters/a/patches.yaml": "# other\n"}) == [True, False]
    assert digests(**{"base/policy.yaml": POLICY + "\n"}) == [True, True]
    assert digests(**{"README.md": "x"}) == [False, False]


def test_patches_are_bounded() -> None:
    wide = doc("NodePool", "h100", "spec:\n  template: {labels: {" + ", ".join(f"k{i}: v" for i in range(500)) + "}}\n")
    one = doc("NodePool", "h100", "spec: {template: {labels: {k1: w}}}\n")
    files = raw(FILES | {"base/pools.yaml": wide, "clusters/a/patches.yaml": "---\n".join([one] * 100)})
    found = inspect(files, LoaderLimits(total_values=5_000), cluster="a").problems
    assert [it.code for it in found if it.severity == "error"] == [Code.TOO_LARGE]
    assert "values, each counted for every patch" in str(found)
    assert inspect(files, cluster="a").fleet is not None
    made = clusters_in(files).files_of("a")
    assert isinstance(made, ClusterFiles)
    assert made.every == ("clusters/a/cluster.yaml", "base/policy.yaml", "base/pools.yaml", "clusters/a/patches.yaml")


WORDS = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(
    st.integers(0, 9) | st.text("xyz", min_size=1, max_size=3),
    lambda below: st.dictionaries(WORDS, below, max_size=3) | st.lists(below, max_size=3),
    max_leaves=8,
)
SPECS = st.dictionaries(WORDS, TREES, max_size=3)


def _document(file: str, spec: object) -> Document:
    text = json.dumps({"apiVersion": "v", "kind": "K", "metadata": {"name": "n"}, "spec": spec}, indent=1)
    documents, wrong = parse(SourceFile(file, text))
    assert not wrong
    return documents[0]


def _leaves(node: YamlNode, source: SourceFile) -> None:
    """Every value stands where its node says, and data says what the children do."""
    source = node.source or source
    if isinstance(node.children, dict):
        assert node.data == {key: value.data for key, (_, value) in node.children.items()}
        for _, value in node.children.values():
            _leaves(value, source if value.source is None else value.source)
    elif isinstance(node.children, list):
        assert node.data == [it.data for it in node.children]
        for it in node.children:
            _leaves(it, source if it.source is None else it.source)
    else:
        assert source.lines[node.line - 1][node.column - 1 :].startswith(json.dumps(node.data))


@given(SPECS, st.lists(SPECS, min_size=1, max_size=3))
def test_every_value_keeps_its_place(base: object, patches: list[object]) -> None:
    document = _document("base.yaml", base)
    before = json.dumps(document.root.data)
    changes = [_document(f"{index}.yaml", it) for index, it in enumerate(patches)]
    result = apply_patches([document], changes, LoaderLimits(), complete=True)
    assert not result.problems
    for key, (_, value) in result.documents[0].root.children.items():  # type: ignore[union-attr]
        del key
        _leaves(value, document.source)
    assert json.dumps(document.root.data) == before, "what clusters share is not written into"
    again = apply_patches(result.documents, changes[-1:], LoaderLimits(), complete=True)
    assert again.documents[0].root.data == result.documents[0].root.data, "the same patch twice changes nothing"


@given(SPECS)
def test_a_patch_of_what_is_there_changes_nothing(base: object) -> None:
    result = apply_patches([_document("a", base)], [_document("b", base)], LoaderLimits(), complete=True)
    assert result.documents[0].root.data["spec"] == base
