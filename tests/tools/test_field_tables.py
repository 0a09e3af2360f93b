"""The kind pages: tables that match the models, examples that load, links that lead somewhere."""

import re
from pathlib import Path

import pytest

from model import report
from model.kinds import KINDS, Declaration, Kind
from model.loader import inspect
from model.mig import mig_models
from tools.field_tables import FAMILIES, field_table, fields_of, page_name, with_table, with_tables
from tools.schema import ALL_KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "kinds"
EXAMPLES = DOCS.parents[1] / "examples" / "clusters"
_FENCE = re.compile(r"^```yaml( fragment)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def page(kind: type[Kind]) -> str:
    return (DOCS / page_name(kind)).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_table_is_current(kind: type[Kind]) -> None:
    assert page(kind) == with_table(page(kind), kind), "run `python -m tools.field_tables docs/kinds`"


@pytest.mark.parametrize("name", FAMILIES)
def test_tables_of_a_family_are_current(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert text == with_tables(text, FAMILIES[name]), "run `python -m tools.field_tables docs/kinds`"


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_field_says_what_it_means(kind: type[Declaration]) -> None:
    assert [row.path for row in fields_of(kind) if not row.meaning] == []
    assert field_table(kind).count("\n") >= 3


PAGES = {page_name(kind): (kind.__name__,) for kind in KINDS} | {
    name: tuple(kind.model_fields["kind"].default for kind in kinds) for name, kinds in FAMILIES.items()
}


@pytest.mark.parametrize("name", PAGES)
def test_examples_form_a_fleet(name: str) -> None:
    found = _FENCE.findall((DOCS / name).read_text(encoding="utf-8"))
    examples = [text for fragment, text in found if not fragment or text.startswith("# clusters/")]
    loaded = inspect(_files(examples))
    errors = [problem for problem in loaded.problems if problem.severity == "error"]
    assert errors == [], report.text(errors)
    assert [kind for kind in PAGES[name] if not any(f"kind: {kind}\n" in text for text in examples)] == []


def _files(examples: list[str]) -> dict[str, bytes]:
    """One file of all, but for those whose comment names another: they patch the base of the example."""
    named = {text.split()[1].rstrip(":"): text.encode() for text in examples if text.startswith("# clusters/")}
    base = {path: (EXAMPLES / path).read_bytes() for path in ("base/pools.yaml", "base/policy.yaml")} if named else {}
    rest = [text for text in examples if not text.startswith("# clusters/")]
    return named | base | ({"page.yaml": "---\n".join(rest).encode()} if rest else {})


def test_there_is_a_page_for_each_kind_and_no_other() -> None:
    assert {path.name for path in DOCS.glob("*.md")} == {*PAGES, "README.md"}


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = _LINK.findall(path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_mig_page_names_every_model() -> None:
    text = (DOCS / "mig-layout.md").read_text(encoding="utf-8")
    assert [name for name in mig_models() if f"`{name}`" not in text] == []


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        with_table("# Team", KINDS[0])


@pytest.mark.parametrize(
    ("path", "type_", "default"),
    [
        ("spec.capacityTypes", "list of `reserved`, `spot`, `on-demand`", "`[on-demand]`"),
        ("spec.template.expireAfter", "duration", "`720h`"),
        ("spec.template.terminationGracePeriod", "duration", "`Never`"),
        ("spec.disruption.budgets[].nodes", "integer, 0 to 100000 or percentage", "`10%`"),
        ("spec.limits.resources", "resource -> quantity", ""),
        ("spec.requirements[].key", "text", "required"),
        ("spec.placement.efa", "true or false or `Requested`", "`false`"),
        ("spec.gpu.minMemoryMiB", "integer, 1 to 16777216", ""),
    ],
)
def test_rows(path: str, type_: str, default: str) -> None:
    row = next(row for row in fields_of(KINDS[0]) if row.path == path)
    assert (row.type, row.default) == (type_, default)
