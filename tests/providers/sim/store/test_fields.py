"""FieldsV1: the wire form and the sets are the same thing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.sim.store.fields import (
    FieldDifference,
    fields_v1_of,
    from_fields_v1,
    less_paths,
    paths_of,
    readable,
    to_fields_v1,
    with_paths,
)
from providers.sim.store.listkeys import named_shape

SHAPE = named_shape("Pod")


def _name(item: Any) -> str:
    return str(item["name"])


_names = st.sampled_from(["a", "b", "c"])
_leaf: st.SearchStrategy[Any] = st.integers(0, 2) | st.just({}) | st.just([])
_env: st.SearchStrategy[Any] = st.lists(
    st.fixed_dictionaries({"name": _names, "value": _leaf}), max_size=3, unique_by=_name
)
_container: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"name": _names}, optional={"env": _env, "image": _leaf, "command": st.lists(_names)}
)
_objects = st.fixed_dictionaries(
    {},
    optional={
        "containers": st.lists(_container, max_size=3, unique_by=_name),
        "finalizers": st.lists(_names, max_size=3, unique=True),
        "tolerations": st.lists(st.fixed_dictionaries({"key": _names}), max_size=2),
        "selector": st.dictionaries(_names, _leaf, max_size=2),
        "labels": st.dictionaries(_names, _leaf, max_size=3),
    },
)
_path = st.lists(st.sampled_from(["f:a", "f:b", "f:c"]), min_size=1, max_size=3).map(tuple)
_sets = st.frozensets(_path, max_size=8)


@given(_objects)
def test_one_pass_encoding_is_the_encoding_of_the_set(obj: dict[str, Any]) -> None:
    if obj:
        assert fields_v1_of(obj, SHAPE) == to_fields_v1(paths_of(obj, SHAPE))


@given(_sets)
def test_the_wire_form_loses_nothing(paths: frozenset[tuple[str, ...]]) -> None:
    assert from_fields_v1(to_fields_v1(paths)) == paths


@given(_sets, _sets)
def test_adding_and_taking_on_the_wire_is_set_algebra(a: frozenset[Any], b: frozenset[Any]) -> None:
    wire = to_fields_v1(a)
    assert from_fields_v1(with_paths(wire, b)) == a | b
    assert from_fields_v1(less_paths(wire, b)) == a - b
    assert less_paths(wire, b - a) is wire or b - a
    assert wire == to_fields_v1(a)


@given(_objects, _objects)
def test_a_difference_explains_the_change_of_the_set(before: dict[str, Any], after: dict[str, Any]) -> None:
    change = FieldDifference(before, after, SHAPE)
    if before and after:
        had, has = paths_of(before, SHAPE), paths_of(after, SHAPE)
        assert has - had <= change.written <= has
        assert had - has <= change.removed <= had


@given(_objects)
def test_nothing_changed_is_no_difference(obj: dict[str, Any]) -> None:
    change = FieldDifference(obj, dict(obj), SHAPE)
    assert not change.written
    assert not change.removed


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ({"replicas": 1}, {"f:replicas": {}}),
        ({"labels": {}}, {"f:labels": {}}),
        ({"labels": {"a": "1"}}, {"f:labels": {"f:a": {}}}),
        ({"tolerations": [{"key": "a"}]}, {"f:tolerations": {}}),
        ({"nodeSelector": {"a": "1"}}, {"f:nodeSelector": {}}),
        ({"finalizers": ["x"]}, {"f:finalizers": {'v:"x"': {}}}),
        (
            {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
            {
                "f:containers": {
                    'k:{"name":"c"}': {
                        ".": {},
                        "f:name": {},
                        "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                    }
                }
            },
        ),
    ],
)
def test_encoding_as_the_real_server_does(obj: dict[str, Any], expected: dict[str, Any]) -> None:
    assert fields_v1_of(obj, SHAPE) == expected


def test_paths_read_well() -> None:
    path = ("f:spec", "f:containers", 'k:{"name":"a"}', "f:args", 'v:"x"')
    assert readable(path) == '.spec.containers[name="a"].args[="x"]'


def test_a_keyed_item_without_its_key_is_one_of_its_own() -> None:
    assert ("f:containers", "k:{}", "f:image") in paths_of({"containers": [{"image": "x"}]}, SHAPE)
