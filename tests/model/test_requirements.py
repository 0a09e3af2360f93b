"""The algebra's laws, explanations and edges; Karpenter's own table is in test_requirements_conformance.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.kinds import RequirementTerm
from model.labels import ARCH, INSTANCE_TYPE, ZONE
from model.requirements import STRICT, InvalidRequirement, Requirement, Requirements

VALUES = ["1", "2", "5", "9", "10", "A", "B", "-3", "007", "١"]
BOUNDS = ["-3", "1", "2", "5", "9"]


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Gte", "Lt", "Lte"]))
    least = draw(st.none() | st.integers(1, 4))
    if operator in {"Exists", "DoesNotExist"}:
        return Requirement.of(operator, (), least)
    if operator in {"In", "NotIn"}:
        return Requirement.of(operator, draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4)), least)
    return Requirement.of(operator, [draw(st.sampled_from(BOUNDS))], least)


@given(requirements(), requirements(), st.sampled_from(VALUES))
def test_intersection_allows_what_both_allow(left: Requirement, right: Requirement, value: str) -> None:
    assert (left & right).has(value) == (left.has(value) and right.has(value))


@given(requirements(), requirements(), requirements())
def test_intersection_is_a_semilattice(one: Requirement, two: Requirement, three: Requirement) -> None:
    assert one & two == two & one
    assert one & one == one
    together, other = (one & two) & three, one & (two & three)
    assert all(together.has(value) == other.has(value) for value in VALUES)
    assert together.min_values == other.min_values


@given(requirements(), requirements())
def test_overlap_is_a_non_empty_intersection(left: Requirement, right: Requirement) -> None:
    assert left.overlaps(right) == (not (left & right).is_empty)
    assert left.overlaps(right) == right.overlaps(left)


@given(requirements(), requirements())
def test_terms_read_back(left: Requirement, right: Requirement) -> None:
    both = Requirements({"key": left & right})
    assert Requirements.from_terms(both.terms()) == both


@given(requirements(), st.none() | st.sampled_from(VALUES))
def test_matches_is_the_node_selector_of_kubernetes(requirement: Requirement, value: str | None) -> None:
    labels = {} if value is None else {"key": value}
    expected = requirement.allows_absent if value is None else requirement.has(value)
    assert Requirements({"key": requirement}).matches(labels) == expected


@given(requirements(), requirements())
def test_equal_requirements_are_one_key(left: Requirement, right: Requirement) -> None:
    one, two = Requirements({"a": left, "b": right}), Requirements({"b": right, "a": left})
    assert one == two
    assert len({one, two}) == 1


@pytest.mark.parametrize(
    ("operator", "values", "reason"),
    [
        ("In", [], "at least one value"),
        ("NotIn", [], "at least one value"),
        ("Exists", ["a"], "no values"),
        ("DoesNotExist", ["a"], "no values"),
        ("Gt", [], "exactly one integer"),
        ("Gt", ["1", "2"], "exactly one integer"),
        ("Lt", ["x"], "exactly one integer"),
        ("Gte", ["1.5"], "exactly one integer"),
        ("Lte", ["1_0"], "exactly one integer"),
        ("Near", ["1"], "unknown operator"),
    ],
)
def test_malformed_terms(operator: str, values: list[str], reason: str) -> None:
    with pytest.raises(InvalidRequirement, match=reason):
        Requirement.of(operator, values)


def test_a_bound_beyond_the_integers_allows_nothing() -> None:
    assert Requirement.of("Gt", [str(2**63 - 1)]).is_empty
    assert Requirement.of("Lt", [str(-(2**63))]).is_empty
    assert not Requirement.of("Gte", [str(2**63 - 1)]).is_empty


@pytest.mark.parametrize("value", ["", "x", "1.0", " 5", "5 ", "1_0", "٥", "99999999999999999999"])
def test_bounds_admit_integers_only(value: str) -> None:
    assert not Requirement.of("Gte", ["0"]).has(value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("beta.kubernetes.io/arch", ARCH),
        ("failure-domain.beta.kubernetes.io/zone", ZONE),
        ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
    ],
)
def test_legacy_labels_mean_the_current_ones(old: str, new: str) -> None:
    both = Requirements.from_terms(
        [
            RequirementTerm(key=old, operator="In", values=("a", "b")),
            RequirementTerm(key=new, operator="In", values=("b", "c")),
        ]
    )
    assert list(both) == [new]
    assert both.of(old).only == "b"
    assert both.of("something/else") == Requirement.ANY


def test_undefined_keys() -> None:
    nothing = Requirements()
    wanted = Requirements.from_labels({ZONE: "a"})
    assert nothing.compatible(wanted)
    assert not nothing.compatible(wanted, undefined=STRICT)
    assert nothing.compatible(Requirements({"x": Requirement.of("NotIn", ["a"])}), undefined=STRICT)
    assert nothing.compatible(Requirements({"x": Requirement.NONE}), undefined=STRICT)
    assert not nothing.compatible(Requirements({"x": Requirement.ANY}))


def test_intersection_of_maps() -> None:
    one = Requirements({"a": Requirement.one_of("1", "2"), "b": Requirement.one_of("x")})
    two = Requirements({"a": Requirement.one_of("2", "3"), "c": Requirement.ANY})
    both = one & two
    assert both.labels() == {"a": "2", "b": "x"}
    assert set(both) == {"a", "b", "c"}
    assert (one & Requirements({"b": Requirement.one_of("y")})).empty_keys() == ("b",)
    assert str(one) == "a In [1, 2], b In [x]"
