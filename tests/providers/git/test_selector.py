"""Which commit is meant: Flux's vocabulary and precedence."""

import pytest

from providers.git.errors import InvalidSelector, RevisionNotFound
from providers.git.selector import Branch, Commit, Ref, Selector, SemVer, Tag, Target, select

A, B, C, D = ("a" * 40, "b" * 40, "c" * 40, "d" * 40)
HEADS = {
    "HEAD": A,
    "refs/heads/main": A,
    "refs/heads/v9.0.0": A,
    "refs/heads/team/x": B,
    "refs/pull/42/head": C,
    "refs/tags/v1.0.0": D,
    "refs/tags/v1.0.0^{}": B,
    "refs/tags/v1.1.0": C,
    "refs/tags/v1.2.0-rc.1": D,
    "refs/tags/nightly": A,
}


@pytest.mark.parametrize(
    ("selector", "ref", "oid", "revision"),
    [
        (Branch(), "refs/heads/main", A, f"main@sha1:{A}"),
        (Branch("team/x"), "refs/heads/team/x", B, f"team/x@sha1:{B}"),
        (Tag("v1.0.0"), "refs/tags/v1.0.0", B, f"v1.0.0@sha1:{B}"),
        (Tag("nightly"), "refs/tags/nightly", A, f"nightly@sha1:{A}"),
        (Ref("refs/pull/42/head"), "refs/pull/42/head", C, f"refs/pull/42/head@sha1:{C}"),
        (Commit(D), "", D, f"sha1:{D}"),
        (Commit(D, "main"), "refs/heads/main", D, f"main@sha1:{D}"),
        (SemVer("^1.0"), "refs/tags/v1.1.0", C, f"v1.1.0@sha1:{C}"),
        (SemVer("~1.0"), "refs/tags/v1.0.0", B, f"v1.0.0@sha1:{B}"),
        (SemVer(">=1.2.0-rc.0"), "refs/tags/v1.2.0-rc.1", D, f"v1.2.0-rc.1@sha1:{D}"),
    ],
)
def test_resolves(selector: Selector, ref: str, oid: str, revision: str) -> None:
    target = selector.resolve(HEADS)
    assert target == Target(ref, oid)
    assert target.revision == revision


@pytest.mark.parametrize("selector", [Branch("gone"), Tag("gone"), Ref("refs/pull/1/head"), SemVer("^9")])
def test_what_the_remote_lacks_is_an_error(selector: Selector) -> None:
    with pytest.raises(RevisionNotFound):
        selector.resolve(HEADS)


def test_equal_versions_resolve_the_same_way_in_any_order() -> None:
    heads = {"refs/tags/1.0.0": A, "refs/tags/v1.0.0": B}
    assert SemVer("1").resolve(heads) == SemVer("1").resolve(dict(reversed(heads.items())))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Branch("main")),
        ({"branch": "x"}, Branch("x")),
        ({"branch": "x", "tag": "t"}, Tag("t")),
        ({"branch": "x", "tag": "t", "semver": "^1"}, SemVer("^1")),
        ({"branch": "x", "tag": "t", "semver": "^1", "name": "refs/n"}, Ref("refs/n")),
        ({"branch": "x", "tag": "t", "semver": "^1", "name": "refs/n", "commit": A}, Commit(A, "x")),
    ],
)
def test_the_later_field_wins(fields: dict[str, str], expected: Selector) -> None:
    assert select(**fields) == expected


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "a..b",
        "a:b",
        "*",
        "a^",
        "a~1",
        "a?",
        "a[",
        "a\\",
        "/a",
        "a/",
        "a//b",
        "a.lock",
        "a.lock/b",
        "a@{1}",
        "a\n",
        ".",
        "a/.b",
        "a.",
        "",
        "a\u202eb",
        "x" * 600,
    ],
)
def test_names_that_would_change_a_refspec_are_refused(name: str) -> None:
    with pytest.raises(InvalidSelector):
        Branch(name)
    with pytest.raises(InvalidSelector):
        Ref(f"refs/heads/{name}")


@pytest.mark.parametrize("bad", ["abc", "A" * 40, "a" * 39, "g" * 40, "HEAD"])
def test_only_a_whole_oid_pins(bad: str) -> None:
    with pytest.raises(InvalidSelector):
        Commit(bad)


def test_a_ref_is_full() -> None:
    with pytest.raises(InvalidSelector):
        Ref("main")
