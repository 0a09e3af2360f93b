"""Whatever stands in a repository, the loader answers with a fleet or with problems, and places them in the file."""

import json
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from model import report
from model.loader import inspect
from model.loader.known_keys import known_keys
from tools.schema import ALL_KINDS

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
DOCUMENTS = [
    document for path in sorted(EXAMPLES.rglob("*.yaml")) for document in yaml.safe_load_all(path.read_text("utf-8"))
]
FIELDS = sorted(
    {key for kind in ALL_KINDS for path in [(), ("spec",), ("metadata",)] for key in known_keys(kind, path)}
    | {"nodes", "schedule", "duration", "key", "values", "operator", "devices", "profiles", "mig", "guaranteed", "x"}
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 20)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "all", "In", "10%", "1h", "@daily", "0 0 30 2 *", "a/b/c", "h100-80gb", "1g.10gb", "org"])
    | st.text(max_size=6)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=6,
)


def places(data: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [here] + [place for key, value in items for place in places(value, (*here, key))]


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """`data` with `value` at `path`."""
    if not path:
        return value
    changed = data.copy()
    changed[path[0]] = put(data[path[0]], path[1:], value)
    return changed


@settings(max_examples=150)
@given(st.data())
def test_any_change_of_a_good_fleet(data: st.DataObject) -> None:
    documents: list[Any] = [json.loads(json.dumps(document)) for document in DOCUMENTS]
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(documents) - 1))
        path = data.draw(st.sampled_from(places(documents[index])))
        documents[index] = put(documents[index], path, data.draw(VALUES))
    text = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)
    loaded = inspect({"fleet.yaml": text.encode("utf-8", "surrogatepass")})
    lines = text.count("\n") + 1
    assert all(1 <= problem.line <= lines and problem.column >= 1 for problem in loaded.problems)
    assert (loaded.fleet is None) == any(problem.severity == "error" for problem in loaded.problems)
    for render in report.FORMATS.values():
        assert isinstance(render(loaded.problems), str)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["apiVersion", "kind", "metadata", "spec", "mig-configs"]), VALUES, max_size=5))
def test_any_document(document: dict[str, Any]) -> None:
    loaded = inspect({"a.yaml": json.dumps(document).encode()})
    assert loaded.fleet is None or not document


@given(st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    loaded = inspect({"a.yaml": content})
    assert loaded.fleet is not None or loaded.problems
