"""RFC 6902 and RFC 7386: their appendices as tables, their laws as properties."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.sim.store import ApiError, StoreBadRequest, StoreInvalid
from providers.sim.store.jsonpatch import json_patch, merge_patch

_scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab/~", max_size=3)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~0", max_size=2), inner, max_size=3),
    max_leaves=12,
)
_full = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=12,
)

# RFC 7386 appendix A
MERGES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]

# RFC 6902 appendix A
PATCHES = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo", "foo": "bar"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "qux"}], {"baz": "qux"}),
    ({"foo": "bar"}, [{"op": "add", "path": "/child", "value": {"g": {}}}], {"foo": "bar", "child": {"g": {}}}),
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux", "xyz": 1}], {"foo": "bar", "baz": "qux"}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
    ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ({"a": None}, [{"op": "remove", "path": "/a"}], {}),
]
REFUSED = [
    ({"baz": "qux"}, {"op": "test", "path": "/baz", "value": "bar"}, StoreInvalid),
    ({"foo": "bar"}, {"op": "add", "path": "/baz/bat", "value": "qux"}, StoreInvalid),
    ({"/": 9, "~1": 10}, {"op": "test", "path": "/~01", "value": "10"}, StoreInvalid),
    ({"a": 1}, {"op": "test", "path": "/a", "value": True}, StoreInvalid),
    ({"a": [True]}, {"op": "test", "path": "/a", "value": [1]}, StoreInvalid),
    ({"a": 1}, {"op": "remove", "path": "/b"}, StoreInvalid),
    ({"a": 1}, {"op": "replace", "path": "/b", "value": 1}, StoreInvalid),
    ({"a": [1]}, {"op": "add", "path": "/a/2", "value": 1}, StoreInvalid),
    ({"a": [1]}, {"op": "remove", "path": "/a/-"}, StoreInvalid),
    ({"a": [1]}, {"op": "remove", "path": "/a/01"}, StoreInvalid),
    ({"a": [1]}, {"op": "remove", "path": "/a/-1"}, StoreInvalid),
    ({"a": [1]}, {"op": "replace", "path": "/a/9999999999999999999", "value": 1}, StoreInvalid),
    ({"a": {"b": 1}}, {"op": "move", "from": "/a", "path": "/a/b/c"}, StoreInvalid),
    ({"a": 1}, {"op": "remove", "path": ""}, StoreInvalid),
    ({"a": 1}, {"op": "remove", "path": "a"}, StoreBadRequest),
    ({"a": 1}, {"op": "add", "path": "/b"}, StoreBadRequest),
    ({"a": 1}, {"op": "copy", "path": "/b"}, StoreBadRequest),
    ({"a": 1}, {"op": "frobnicate", "path": "/b"}, StoreBadRequest),
    ({"a": 1}, "remove", StoreBadRequest),
]


@pytest.mark.parametrize(("target", "patch", "expected"), MERGES)
def test_merge_patch_appendix(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


@pytest.mark.parametrize(("target", "operations", "expected"), PATCHES)
def test_json_patch_appendix(target: Any, operations: Any, expected: Any) -> None:
    assert json_patch(target, operations) == expected


@pytest.mark.parametrize(("target", "operation", "error"), REFUSED)
def test_json_patch_refuses(target: Any, operation: Any, error: type[ApiError]) -> None:
    before = copy.deepcopy(target)
    with pytest.raises(error):
        json_patch(target, [{"op": "add", "path": "/early", "value": 1}, operation])
    assert target == before


def test_json_patch_is_a_bounded_list() -> None:
    with pytest.raises(StoreBadRequest, match="list"):
        json_patch({}, {})
    with pytest.raises(StoreBadRequest, match="at most"):
        json_patch({}, [{"op": "test", "path": "", "value": {}}] * 10_001)


def _difference(before: Any, after: Any) -> Any:
    """The merge patch from `before` to `after`, both without nulls."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    gone = {key: None for key in before if key not in after}
    return gone | {k: _difference(before.get(k), v) for k, v in after.items() if k not in before or before[k] != v}


@given(_full, _full)
def test_a_merge_patch_reaches_any_value_without_nulls(before: Any, after: Any) -> None:
    assert merge_patch(before, _difference(before, after)) == after


@given(_values, _values)
def test_merging_twice_is_merging_once_and_changes_no_input(target: Any, patch: Any) -> None:
    kept = copy.deepcopy((target, patch))
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == kept


@given(st.dictionaries(st.text("ab/~", max_size=3), _values, max_size=4), st.text("ab/~", max_size=3), _values)
def test_add_then_remove_is_nothing_and_changes_no_input(target: dict[str, Any], key: str, value: Any) -> None:
    kept = copy.deepcopy(target)
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    added = json_patch(target, [{"op": "add", "path": pointer, "value": value}])
    assert added == {**target, key: value}
    if key not in target:
        assert json_patch(added, [{"op": "remove", "path": pointer}]) == target
    assert json_patch(added, [{"op": "test", "path": pointer, "value": value}]) == added
    assert target == kept
