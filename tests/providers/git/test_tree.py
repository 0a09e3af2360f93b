"""Reading a commit without a checkout: what is taken, what is left out, and hostile trees."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import pygit2
import pytest

from providers.git.errors import (
    CorruptRepository,
    EntryNotRead,
    MergeConflict,
    PathNotFound,
    RepositoryTooLarge,
    RevisionNotFound,
)
from providers.git.files import FileLimits
from providers.git.opening import open_repository
from providers.git.tree import merge_tree, scan_tree, scratch, tree_oid
from tests.providers.git.support import WorkTree

MakeWork = Callable[..., WorkTree]


def read_tree(repo: Any, oid: str, sub_path: str = "", **limits: Any) -> Mapping[str, bytes]:
    return scan_tree(repo, oid, sub_path, FileLimits(**limits)).files


def test_reads_sorted_yaml_with_paths_from_the_root(work: WorkTree) -> None:
    for name in ("pools/z.yml", "pools/b/a.yaml", "README.md", "pools/b/x.json"):
        work.write(name, name)
    oid = work.commit("a.yaml", "a: 1\n")
    repo = open_repository(work.path)
    assert list(read_tree(repo, oid).items()) == [
        ("a.yaml", b"a: 1\n"),
        ("pools/b/a.yaml", b"pools/b/a.yaml"),
        ("pools/z.yml", b"pools/z.yml"),
    ]
    assert list(read_tree(repo, oid, "pools/b")) == ["pools/b/a.yaml"]
    assert list(read_tree(repo, oid, "/pools/./b/", suffixes=(".json",))) == ["pools/b/x.json"]


def test_the_oid_of_a_folder_changes_only_with_its_content(work: WorkTree) -> None:
    first = work.commit("pools/a.yaml", "1")
    second = work.commit("other.yaml", "1")
    third = work.commit("pools/a.yaml", "2")
    repo = open_repository(work.path)
    assert tree_oid(repo, first, "pools") == tree_oid(repo, second, "pools") != tree_oid(repo, third, "pools")
    assert tree_oid(repo, first) != tree_oid(repo, second)


@pytest.mark.parametrize("sub_path", ["gone", "a.yaml", "a.yaml/b", "../work", "a/../b"])
def test_a_folder_that_is_not_there_is_no_empty_fleet(work: WorkTree, sub_path: str) -> None:
    with pytest.raises(PathNotFound):
        read_tree(open_repository(work.path), work.head(), sub_path)


def test_an_unknown_commit(work: WorkTree) -> None:
    with pytest.raises(RevisionNotFound):
        read_tree(open_repository(work.path), "1" * 40)


def test_a_blob_is_not_a_commit(work: WorkTree) -> None:
    with pytest.raises(RevisionNotFound):
        read_tree(open_repository(work.path), work.head("HEAD:a.yaml"))


def test_what_could_declare_something_and_cannot_be_read_is_an_error_that_names_all_of_it(work: WorkTree) -> None:
    (work.path / "link.yaml").symlink_to("/etc/hostname")
    (work.path / "folder").symlink_to("/etc")
    for name in (b"\xff.yaml", "\u202ea.yaml".encode(), b"a\nb.yaml", b"a\\b.yaml", b"\x1b[31m.yaml", b"\xff.txt"):
        (work.path / os.fsdecode(name)).write_bytes(b"x")
    work.commit("ä b.yaml", "ok")
    work.git("update-index", "--add", "--cacheinfo", f"160000,{work.head()},module")
    work.git("commit", "-qm", "module")
    with pytest.raises(EntryNotRead) as caught:
        scan_tree(open_repository(work.path), work.head())
    odd = "the name has characters that do not print, or a backslash"
    assert caught.value.entries == {
        "\\xff.yaml": "the name is not UTF-8",
        "\\xe2\\x80\\xaea.yaml": odd,
        "a\\nb.yaml": odd,
        "a\\\\b.yaml": odd,
        "\\x1b[31m.yaml": odd,
        "link.yaml": "it is a symbolic link, which is not followed",
        "folder": "it is a symbolic link, which is not followed",
        "module": "it is a submodule, which is not followed",
    }
    assert "and 3 more" in str(caught.value)
    assert ".musterignore" in str(caught.value)
    assert str(caught.value).isprintable()
    (work.path / ".musterignore").write_bytes(b"*.yaml\n!*a.yaml\n!* b.yaml\n/folder\nmodule\n\xe2*\n")
    work.git("add", "-A", ".musterignore")
    work.git("commit", "-qm", "ignored")
    assert list(scan_tree(open_repository(work.path), work.head()).files) == ["a.yaml", "ä b.yaml"]


def raw_tree(work: WorkTree, *entries: tuple[bytes, bytes, str]) -> str:
    """A tree object git itself would refuse to make."""
    content = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
    return work.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=content)


@pytest.mark.parametrize("name", [b"..", b".", b"", b"a/b.yaml", b".git"])
def test_entries_that_would_leave_the_folder_never_become_paths(work: WorkTree, name: bytes) -> None:
    blob = work.head("HEAD:a.yaml")
    inner = raw_tree(work, (b"100644", b"x.yaml", blob))
    outer = raw_tree(work, (b"40000", name, inner), (b"100644", name + b".yaml", blob))
    try:
        paths = list(scan_tree(open_repository(work.path), outer).files)
    except (CorruptRepository, EntryNotRead):
        return  # libgit2 refuses some of these itself
    assert [path for path in paths if "/" in path or path.startswith("../")] == []


def test_a_tree_that_unfolds_without_end_is_stopped(work: WorkTree) -> None:
    # Ten folders of ten folders of ...: 10^12 files in a dozen objects ("git bomb").
    oid = work.head("HEAD:a.yaml")
    tree = raw_tree(work, *((b"100644", b"f%d.txt" % index, oid) for index in range(10)))
    for _ in range(12):
        tree = raw_tree(work, *((b"40000", b"d%d" % index, tree) for index in range(10)))
    with pytest.raises(RepositoryTooLarge):
        scan_tree(open_repository(work.path), tree, limits=FileLimits(max_entries=5_000))


LIMITS = [
    (FileLimits(max_files=2), RepositoryTooLarge),
    (FileLimits(max_bytes=11), RepositoryTooLarge),
    (FileLimits(max_file_bytes=3), RepositoryTooLarge),
    (FileLimits(max_entries=4), RepositoryTooLarge),
    (FileLimits(max_depth=1), RepositoryTooLarge),
    (FileLimits(max_files=3, max_bytes=12, max_file_bytes=4, max_entries=5, max_depth=2), None),
]


@pytest.mark.parametrize(("limits", "error"), LIMITS)
def test_limits_are_errors_and_exact(make_work: MakeWork, limits: FileLimits, error: type[Exception] | None) -> None:
    work = make_work("limits")
    for name in ("a.yaml", "b.yaml", "d/e/c.yaml"):
        work.write(name, "1234")
    repo, oid = open_repository(work.path), work.commit_all()
    if error is None:
        assert len(scan_tree(repo, oid, limits=limits).files) == 3
    else:
        with pytest.raises(error):
            scan_tree(repo, oid, limits=limits)


def test_ignore_files_count_from_the_sub_path_down(work: WorkTree) -> None:
    work.write(".musterignore", "b.yaml\n")
    work.write("fleet/.musterignore", "drafts/\n*.bak.yaml\n!keep.bak.yaml\n")
    for name in (
        "b.yaml",
        "fleet/b.yaml",
        "fleet/drafts/x.yaml",
        "fleet/a.bak.yaml",
        "fleet/keep.bak.yaml",
        "fleet/s/.musterignore",
    ):
        work.write(name, "!a.bak.yaml\n")
    work.write("fleet/s/a.bak.yaml", "")
    oid, repo = work.commit_all(), open_repository(work.path)
    assert list(read_tree(repo, oid)) == ["a.yaml", "fleet/keep.bak.yaml", "fleet/s/a.bak.yaml"]
    assert list(read_tree(repo, oid, "fleet")) == ["fleet/b.yaml", "fleet/keep.bak.yaml", "fleet/s/a.bak.yaml"]


def test_many_ignore_files_share_one_limit(work: WorkTree) -> None:
    for folder in "abc":
        work.write(f"{folder}/.musterignore", "x\n" * 400)
    oid = work.commit_all()
    with pytest.raises(RepositoryTooLarge):
        read_tree(open_repository(work.path), oid)


@pytest.fixture
def fork(work: WorkTree) -> tuple[str, str]:
    """main has gained `main.yaml`, the branch `review` has gained `review.yaml`."""
    work.git("checkout", "-qb", "review")
    head = work.commit("review.yaml", "r")
    work.git("checkout", "-q", "main")
    return work.commit("main.yaml", "m"), head


def test_the_merge_keeps_what_main_has_gained(work: WorkTree, fork: tuple[str, str]) -> None:
    repo = open_repository(work.path)
    objects = set(repo)
    with scratch(repo) as area:
        merged = merge_tree(area, *fork)
        assert list(read_tree(area, merged)) == ["a.yaml", "main.yaml", "review.yaml"]
    assert set(open_repository(work.path)) == objects
    work.git("merge", "-q", "--no-edit", "review")
    assert merged == work.head("HEAD^{tree}")


def test_the_merge_sees_the_objects_of_a_linked_work_tree(work: WorkTree, fork: tuple[str, str]) -> None:
    work.git("worktree", "add", "-q", "../linked", "review")
    with scratch(open_repository(work.path.parent / "linked")) as area:
        assert len(read_tree(area, merge_tree(area, *fork))) == 3


def test_a_conflict_names_its_paths(work: WorkTree) -> None:
    work.git("checkout", "-qb", "review")
    work.write("pools/x.yaml", "review")
    head = work.commit("a.yaml", "review")
    work.git("checkout", "-q", "main")
    work.write("pools/x.yaml", "main")
    base = work.commit("a.yaml", "main")
    with scratch(open_repository(work.path)) as area, pytest.raises(MergeConflict) as caught:
        merge_tree(area, base, head)
    assert caught.value.paths == ("a.yaml", "pools/x.yaml")


def test_deleting_what_the_other_side_changed_is_a_conflict(work: WorkTree) -> None:
    work.git("checkout", "-qb", "review")
    work.git("rm", "-q", "a.yaml")
    head = work.commit("b.yaml", "b")
    work.git("checkout", "-q", "main")
    base = work.commit("a.yaml", "main")
    with scratch(open_repository(work.path)) as area, pytest.raises(MergeConflict) as caught:
        merge_tree(area, base, head)
    assert caught.value.paths == ("a.yaml",)


def test_unrelated_histories_do_not_merge(work: WorkTree) -> None:
    base = work.head()
    work.git("checkout", "-q", "--orphan", "other")
    head = work.commit()
    with scratch(open_repository(work.path)) as area, pytest.raises(MergeConflict) as caught:
        merge_tree(area, base, head)
    assert caught.value.paths == ()


def test_damage_is_told_from_absence(work: WorkTree) -> None:
    blob = work.head("HEAD:a.yaml")
    path = work.path / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o600)
    path.write_bytes(b"garbage")
    with pytest.raises(CorruptRepository):
        read_tree(open_repository(work.path), work.head())
    path.unlink()
    with pytest.raises(CorruptRepository):
        read_tree(open_repository(work.path), work.head())


def test_two_threads_get_two_repositories(work: WorkTree) -> None:
    one, two = open_repository(work.path), open_repository(work.path)
    assert one is not two
    assert isinstance(one, pygit2.Repository)
