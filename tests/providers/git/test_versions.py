"""Versions and ranges: the rules of semver.org and node-semver, as tables."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.git.errors import InvalidSelector
from providers.git.versions import Version, parse_range, parse_version

# semver.org, rule 11, and its own example.
ORDER = [
    "0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11",
    "1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0-0", "2.0.0",
]  # fmt: skip


def version(text: str) -> Version:
    found = parse_version(text)
    assert found is not None
    return found


@pytest.mark.parametrize(("low", "high"), list(pairwise(ORDER)))
def test_versions_order_as_the_specification_says(low: str, high: str) -> None:
    assert version(low) < version(high)
    assert version(high) > version(low)


def test_build_metadata_does_not_distinguish() -> None:
    assert version("v1.2.3+build.7") == version("1.2.3")


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3+", "1.2.3 ", "x1.2.3", "1.2.3.4", "vv1.2.3", "１.2.3"],
)
def test_other_tag_names_are_no_versions(text: str) -> None:
    assert parse_version(text) is None


RANGES = [
    ("", "0.0.0 1.2.3 9.9.9", "1.2.3-rc.1"),
    ("*", "0.0.0 9.9.9", "1.0.0-rc.1"),
    ("1.2.3", "1.2.3", "1.2.4 1.2.2 1.2.3-rc.1"),
    ("v1.2.3", "1.2.3", "1.2.4"),
    ("=1.2.3-rc.1", "1.2.3-rc.1", "1.2.3 1.2.3-rc.2"),
    ("!=1.2.3", "1.2.4 1.2.2", "1.2.3"),
    ("!=1.2", "1.3.0 1.1.9", "1.2.0 1.2.9"),
    ("1", "1.0.0 1.9.9", "0.9.9 2.0.0"),
    ("1.x", "1.0.0 1.9.9", "2.0.0 2.0.0-rc.1"),
    ("1.2.*", "1.2.0 1.2.9", "1.3.0 1.1.9"),
    ("1.X.X", "1.0.0", "2.0.0"),
    ("^1.2.3", "1.2.3 1.9.0", "1.2.2 2.0.0 2.0.0-rc.1 1.9.0-rc.1"),
    ("^0.2.3", "0.2.3 0.2.9", "0.3.0 0.2.2"),
    ("^0.0.3", "0.0.3", "0.0.4 0.0.2"),
    ("^0.0", "0.0.0 0.0.9", "0.1.0"),
    ("^0", "0.0.0 0.9.9", "1.0.0"),
    ("^1.x", "1.0.0 1.9.0", "2.0.0"),
    ("^1.2.3-rc.2", "1.2.3-rc.2 1.2.3-rc.10 1.2.3 1.4.0", "1.2.3-rc.1 1.2.4-rc.3 2.0.0-rc.1"),
    ("~1.2.3", "1.2.3 1.2.9", "1.3.0 1.2.2"),
    ("~1.2", "1.2.0 1.2.9", "1.3.0"),
    ("~1", "1.0.0 1.9.0", "2.0.0"),
    ("~>1.2.3", "1.2.9", "1.3.0"),
    (">1.2.3", "1.2.4", "1.2.3"),
    (">1.2", "1.3.0", "1.2.0 1.2.9"),
    (">1", "2.0.0", "1.9.9"),
    (">=1.2", "1.2.0 5.0.0", "1.1.9"),
    ("=>1.2", "1.2.0", "1.1.9"),
    ("<1.2", "1.1.9", "1.2.0 1.2.0-rc.1"),
    ("<=1.2", "1.2.9 1.0.0", "1.3.0"),
    ("<=1.2.3", "1.2.3", "1.2.4"),
    (">*", "", "0.0.0 1.0.0"),
    (">=1.0 <2.0", "1.0.0 1.9.9", "0.9.9 2.0.0"),
    (">= 1.0, < 2.0", "1.0.0 1.9.9", "0.9.9 2.0.0"),
    ("1.2 - 1.4", "1.2.0 1.4.9", "1.1.9 1.5.0"),
    ("1.2.3 - 1.4.5", "1.2.3 1.4.5", "1.4.6 1.2.2"),
    ("^1.0 || ^3.0", "1.5.0 3.1.0", "2.0.0 4.0.0"),
    (">=2.0.0-rc.1", "2.0.0-rc.1 2.0.0-rc.2 2.0.0 3.0.0", "2.0.0-alpha 3.0.0-rc.1 2.0.1-rc.1"),
    (">=1.0.0 || >=2.0.0-rc.1 <3", "1.0.0 2.0.0-rc.1", "1.0.0-rc.1"),
]


@pytest.mark.parametrize(("text", "inside", "outside"), RANGES)
def test_ranges(text: str, inside: str, outside: str) -> None:
    wanted = parse_range(text)
    assert [one for one in inside.split() if version(one) not in wanted] == []
    assert [one for one in outside.split() if version(one) in wanted] == []


@pytest.mark.parametrize(
    "text",
    ["latest", ">=", "1.2.3.4", "^^1", ">=1.0<2.0", "1 ||", "|| 1", "1.2-rc.1", "01", "1 - ", "- 2", "1" * 300, "==1"],
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidSelector):
        parse_range(text)


small = st.integers(0, 3)
parts = st.lists(st.sampled_from([0, 1, 10, "a", "rc"]), max_size=3).map(tuple)
versions = st.builds(Version, small, small, small, parts)


@given(versions, versions, versions)
def test_the_order_is_total(one: Version, two: Version, three: Version) -> None:
    assert (one < two) + (two < one) + (one == two) == 1
    if one < two < three:
        assert one < three


@given(versions, versions)
def test_caret_and_tilde_nest(low: Version, other: Version) -> None:
    text = f"{low.major}.{low.minor}.{low.patch}" + ("-" + ".".join(map(str, low.pre)) if low.pre else "")
    caret, tilde, least = parse_range(f"^{text}"), parse_range(f"~{text}"), parse_range(f">={text}")
    assert low in caret
    assert low in tilde
    if other in caret or other in tilde:
        assert other in least
    if other in caret and low.major:
        assert other in tilde or other.minor != low.minor
