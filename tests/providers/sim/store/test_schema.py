# ruff: noqa: E501 - a row of a table is a line
"""Structural schemas as a table."""

from typing import Any

import pytest

from providers.sim.store.schema import defaulted, faults, pruned, unknown_fields

S: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
                "count": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "ratio": {"type": "number", "exclusiveMinimum": True, "minimum": 0, "multipleOf": 0.5},
                "tags": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "on": {"type": "boolean", "default": True}},
                    },
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
                "deep": {
                    "type": "object",
                    "default": {},
                    "properties": {"depth": {"type": "integer", "default": 3}},
                },
                "maybe": {"type": "string", "nullable": True},
                "when": {"type": "string", "format": "date-time"},
                "one": {"oneOf": [{"required": ["x"]}, {"required": ["y"]}], "type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "not": {"type": "integer", "not": {"enum": [7]}},
            },
        }
    },
}  # fmt: skip

# spec value -> paths at fault
FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"size": 3}, []),
    ({}, ["spec.size"]),
    ({"size": 0}, ["spec.size"]),
    ({"size": 10}, ["spec.size"]),
    ({"size": "3"}, ["spec.size"]),
    ({"size": True}, ["spec.size"]),
    ({"size": 3.0}, []),
    ({"size": 3.5}, ["spec.size"]),
    ({"size": None}, ["spec.size"]),
    ({"size": 3, "mode": "c"}, ["spec.mode"]),
    ({"size": 3, "name": "abc"}, []),
    ({"size": 3, "name": "A"}, ["spec.name", "spec.name"]),
    ({"size": 3, "name": "abcde"}, ["spec.name"]),
    ({"size": 3, "count": 5}, []),
    ({"size": 3, "count": "50%"}, []),
    ({"size": 3, "count": 1.5}, ["spec.count"]),
    ({"size": 3, "ratio": 0.5}, []),
    ({"size": 3, "ratio": 0}, ["spec.ratio"]),
    ({"size": 3, "ratio": 0.75}, ["spec.ratio"]),
    ({"size": 3, "tags": ["a", "a"]}, ["spec.tags[1]"]),
    ({"size": 3, "tags": ["a", "b", "c"]}, ["spec.tags"]),
    ({"size": 3, "tags": [1]}, ["spec.tags[0]"]),
    ({"size": 3, "parts": [{"name": "x"}, {"name": "x"}]}, ["spec.parts[1]"]),
    ({"size": 3, "labels": {"a": 1}}, ["spec.labels.a"]),
    ({"size": 3, "labels": {"a": "1", "b": "2", "c": "3"}}, ["spec.labels"]),
    ({"size": 3, "maybe": None}, []),
    ({"size": 3, "when": "2026-01-02T03:04:05Z"}, []),
    ({"size": 3, "when": "tomorrow"}, ["spec.when"]),
    ({"size": 3, "one": {"x": 1}}, []),
    ({"size": 3, "one": {"x": 1, "y": 1}}, ["<nil>"]),
    ({"size": 3, "one": {}}, ["<nil>", "spec.one.x"]),
    ({"size": 3, "not": 7}, ["spec.not"]),
]


@pytest.mark.parametrize(("spec", "fields"), FAULTS)
def test_faults(spec: dict[str, Any], fields: list[str]) -> None:
    assert [fault["field"] for fault in faults({"spec": spec}, S)] == fields


def test_prune_drops_what_the_schema_does_not_know() -> None:
    given = {
        "apiVersion": "v1",
        "metadata": {"anything": 1},
        "junk": 1,
        "spec": {
            "size": 1,
            "junk": 2,
            "free": {"kept": 1},
            "parts": [{"name": "a", "junk": 3}],
            "labels": {"any": "x"},
        },
    }
    kept = pruned(given, S)
    assert kept == {
        "apiVersion": "v1",
        "metadata": {"anything": 1},
        "spec": {"size": 1, "free": {"kept": 1}, "parts": [{"name": "a"}], "labels": {"any": "x"}},
    }
    assert sorted(unknown_fields(given, S)) == ["junk", "spec.junk", "spec.parts[0].junk"]
    assert not list(unknown_fields(kept, S))


def test_defaults_reach_into_lists_and_defaulted_maps_and_replace_nulls() -> None:
    given = {"spec": {"size": 1, "mode": None, "parts": [{"name": "a"}]}}
    assert defaulted(given, S) == {
        "spec": {"size": 1, "mode": "a", "parts": [{"name": "a", "on": True}], "deep": {"depth": 3}}
    }
    assert given == {"spec": {"size": 1, "mode": None, "parts": [{"name": "a"}]}}
