"""Repositories and folders of the user's own machine."""

import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers.git.disk import read_directory
from providers.git.errors import (
    CorruptRepository,
    EntryNotRead,
    MergeConflict,
    PathNotFound,
    RepositoryTooLarge,
    RevisionNotFound,
)
from providers.git.files import FileLimits, Files
from providers.git.local import open_local
from providers.git.tree import scan_tree
from tests.providers.git.support import WorkTree


def test_plans_between_two_revisions(work: WorkTree) -> None:
    first = work.head()
    work.commit("b.yaml", "b")
    local = open_local(work.path)
    assert list(local.snapshot("main~1").files) == ["a.yaml"]
    assert list(local.snapshot().files) == ["a.yaml", "b.yaml"]
    for written in (first[:7], f"main@sha1:{first}", f"main@sha1:{first[:12]}", f"sha1:{first[:12]}"):
        assert local.snapshot(written).revision == f"sha1:{first}"
    assert local.resolve("HEAD~1") == first
    for nothing in ("gone", f"main@sha1:{'0' * 12}", f"main@sha1:{first[:3]}"):
        with pytest.raises(RevisionNotFound):
            local.snapshot(nothing)


def test_from_a_folder_within(work: WorkTree) -> None:
    work.commit("fleet/prod/x.yaml", "x")
    local = open_local(work.path / "fleet" / "prod")
    assert (local.root, local.sub_path) == (work.path, "fleet/prod")
    assert list(local.snapshot().files) == ["fleet/prod/x.yaml"]
    assert list(read_directory(work.path, local.sub_path).files) == ["fleet/prod/x.yaml"]


def test_bare_linked_and_uncommitted(work: WorkTree) -> None:
    work.git("clone", "-q", "--bare", ".", "../bare.git")
    bare = open_local(work.path.parent / "bare.git")
    assert list(bare.snapshot("main").files) == ["a.yaml"]
    work.git("worktree", "add", "-q", "../linked", "-b", "other")
    assert list(open_local(work.path.parent / "linked").snapshot().files) == ["a.yaml"]
    work.write("new.yaml", "not committed")
    local = open_local(work.path)
    assert list(read_directory(work.path).files) == ["a.yaml", "new.yaml"]
    assert list(local.snapshot().files) == ["a.yaml"]


def test_merging_leaves_the_repository_as_it_was(work: WorkTree) -> None:
    work.git("checkout", "-qb", "topic")
    work.commit("t.yaml", "t")
    work.git("checkout", "-q", "main")
    work.commit("m.yaml", "m")
    local = open_local(work.path)
    before = sorted(path for path in work.path.rglob("*"))
    assert list(local.merge_result("main", "topic").files) == ["a.yaml", "m.yaml", "t.yaml"]
    assert sorted(path for path in work.path.rglob("*")) == before
    work.commit("t.yaml", "other")
    with pytest.raises(MergeConflict) as caught:
        local.merge_result("main", "topic")
    assert caught.value.paths == ("t.yaml",)
    words = "topic does not merge into main: conflicts in t.yaml. Rebase it on main, and plan again"
    assert str(caught.value) == words


def test_a_head_that_is_behind_merges_to_the_base(work: WorkTree) -> None:
    first = work.head()
    work.commit("b.yaml", "b")
    local = open_local(work.path)
    assert (local.contains(first), local.contains("main", first)) == (True, False)
    assert local.merge_result("main", first).files == local.snapshot("main").files


def test_histories_that_nothing_joins_do_not_merge(work: WorkTree) -> None:
    work.git("checkout", "-q", "--orphan", "other")
    work.commit("z.yaml", "z")
    with pytest.raises(MergeConflict, match=r"other and main share no history: .* --no-merge"):
        open_local(work.path).merge_result("main", "other")


def test_a_shallow_clone_says_how_to_mend_it(work: WorkTree) -> None:
    """As CI makes them: neither the common commit nor older ones are there."""
    work.git("checkout", "-qb", "topic")
    for n in range(3):
        work.commit(f"t{n}.yaml", "t")
    work.git("checkout", "-q", "main")
    for n in range(3):
        work.commit(f"m{n}.yaml", "m")
    clone = work.path.parent / "shallow"
    work.git("clone", "-q", "--depth", "2", "--no-single-branch", f"file://{work.path}", str(clone))
    local = open_local(clone)
    assert list(local.snapshot("origin/topic").files)
    with pytest.raises(MergeConflict, match="share no history in this shallow clone: 'git fetch --unshallow'"):
        local.merge_result("origin/main", "origin/topic")
    with pytest.raises(RevisionNotFound, match="git fetch --unshallow"):
        local.snapshot("origin/main~3")
    WorkTree(clone).git("fetch", "-q", "--unshallow")
    mended = sorted(open_local(clone).merge_result("origin/main", "origin/topic").files)
    assert mended == ["a.yaml", "m0.yaml", "m1.yaml", "m2.yaml", "t0.yaml", "t1.yaml", "t2.yaml"]


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(CorruptRepository):
        open_local(tmp_path)


def test_an_empty_repository_has_no_revision(tmp_path: Path, work: WorkTree) -> None:
    work.git("init", "-q", "../empty")
    with pytest.raises(RevisionNotFound):
        open_local(tmp_path / "empty").snapshot()


def test_links_and_special_files_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "fleet"
    root.mkdir()
    (tmp_path / "secret.yaml").write_text("secret")
    (root / "a.yaml").symlink_to(tmp_path / "secret.yaml")
    (root / "out").symlink_to(tmp_path)
    os.mkfifo(root / "pipe.yaml")
    os.mkfifo(root / "pipe")
    with pytest.raises(EntryNotRead) as caught:
        read_directory(root)
    assert caught.value.entries == {
        "a.yaml": "it is a symbolic link, which is not followed",
        "out": "it is a symbolic link, which is not followed",
        "pipe.yaml": "it is a special file, which is not followed",
    }


NAMES = [
    "a.yaml",
    "b.yml",
    "c.txt",
    "d",
    "skip",
    ".hidden",
    ".x.yaml",
    "e\\f.yaml",
    "g\nh.yaml",
    "\u202ei.yaml",
    "ä.yaml",
]
IGNORES = ["skip", "*.yaml\n!a.yaml", "d/\n", "/c.txt\n", "**/b.yml\n", "", "e*\n"]
TREES = st.recursive(
    st.one_of(
        st.binary(max_size=40).map(lambda content: ("file", content)),
        st.sampled_from(["a.yaml", "..", "nowhere", "/etc/hostname"]).map(lambda target: ("link", target)),
    ),
    lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=5).map(lambda it: ("folder", it)),
    max_leaves=12,
)


def lay(path: Path, tree: Any, ignores: Iterator[str]) -> None:
    kind, content = tree
    if kind == "folder":
        path.mkdir(exist_ok=True)
        (path / ".musterignore").write_text(next(ignores))
        for name, inner in content.items():
            lay(path / name, inner, ignores)
    elif kind == "link":
        path.symlink_to(content)
    else:
        path.write_bytes(content)


def outcome(read: Callable[[], Files]) -> tuple[str, object]:
    try:
        return "files", dict(read().files)
    except (EntryNotRead, RepositoryTooLarge) as error:
        return type(error).__name__, str(error)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tree=st.dictionaries(st.sampled_from(NAMES), TREES, max_size=6).map(lambda it: ("folder", it)),
    ignores=st.lists(st.sampled_from(IGNORES), min_size=1, max_size=8),
    limits=st.builds(
        FileLimits,
        max_files=st.sampled_from([1, 3, 100]),
        max_file_bytes=st.sampled_from([20, 100]),
        max_bytes=st.sampled_from([50, 1000]),
        max_depth=st.sampled_from([1, 2, 9]),
    ),
)
def test_a_tree_that_is_committed_and_the_same_tree_on_disk_read_alike(
    tmp_path_factory: pytest.TempPathFactory, tree: Any, ignores: list[str], limits: FileLimits
) -> None:
    work = WorkTree(tmp_path_factory.mktemp("tree"))
    work.git("init", "-q", "-b", "main")
    lay(work.path, tree, itertools.cycle(ignores))
    work.git("add", "--all", "--force")
    work.git("commit", "-q", "--allow-empty", "-m", "x")
    committed = outcome(lambda: scan_tree(open_local(work.path).repo, work.head(), "", limits))
    on_disk = outcome(lambda: read_directory(work.path, "", limits))
    assert on_disk == committed
    shutil.rmtree(work.path)


@pytest.mark.parametrize(
    ("count", "depth"), [(5_001, 1), (3, 33), (3, 32), (5_000, 1)], ids=["many", "deep", "not too deep", "not too many"]
)
def test_the_limits_are_those_of_the_agent(work: WorkTree, count: int, depth: int) -> None:
    folder = work.path.joinpath(*("d" * depth))
    folder.mkdir(parents=True)
    for number in range(count - 1):
        (folder / f"{number}.yaml").write_bytes(b"")
    oid = work.commit_all()
    committed = outcome(lambda: scan_tree(open_local(work.path).repo, oid))
    assert outcome(lambda: read_directory(work.path)) == committed
    assert committed[0] == ("RepositoryTooLarge" if count > 5_000 or depth > 32 else "files")


def test_a_repository_within_is_a_submodule_as_git_would_commit_it(work: WorkTree) -> None:
    inner = WorkTree(work.path / "inner")
    inner.path.mkdir()
    inner.git("init", "-q", "-b", "main")
    inner.commit("pool.yaml", "x")
    oid = work.commit_all()
    committed = outcome(lambda: scan_tree(open_local(work.path).repo, oid))
    assert committed[0] == "EntryNotRead"
    assert outcome(lambda: read_directory(work.path)) == committed


def test_rules_that_cannot_be_read_are_not_passed_over(work: WorkTree) -> None:
    (work.path / ".musterignore").symlink_to("rules")
    oid = work.commit_all()
    committed = outcome(lambda: scan_tree(open_local(work.path).repo, oid))
    assert committed[0] == "EntryNotRead"
    assert "its rules are not read" in str(committed[1])
    assert outcome(lambda: read_directory(work.path)) == committed


@pytest.mark.parametrize("sub_path", ["gone", "..", "a.yaml", "x/../.."])
def test_folders_that_are_not_there_or_outside(tmp_path: Path, sub_path: str) -> None:
    (tmp_path / "a.yaml").write_text("x")
    with pytest.raises(PathNotFound):
        read_directory(tmp_path, sub_path)


def test_a_folder_swapped_for_a_link_leads_nowhere(tmp_path: Path) -> None:
    """The folder is replaced between listing and reading, again and again."""
    outside, root = tmp_path / "outside", tmp_path / "fleet"
    for path, text in ((outside, "secret"), (root / "d", "ours")):
        path.mkdir(parents=True)
        (path / "x.yaml").write_text(text)
    (tmp_path / "link").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (root / "d").rename(tmp_path / "kept")
            (tmp_path / "link").rename(root / "d")
            (root / "d").rename(tmp_path / "link")
            (tmp_path / "kept").rename(root / "d")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            try:
                assert b"secret" not in read_directory(root).files.values()
            except (PathNotFound, EntryNotRead):
                continue
    finally:
        stop.set()
        thread.join(10)


def test_limits_hold_for_folders(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("1234")
    for limits in (
        FileLimits(max_files=1),
        FileLimits(max_file_bytes=3),
        FileLimits(max_bytes=7),
        FileLimits(max_entries=1),
    ):
        with pytest.raises(RepositoryTooLarge):
            read_directory(tmp_path, limits=limits)


def test_handles_are_closed(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / str(index) / "x").mkdir(parents=True)
        (tmp_path / str(index) / "x" / "a.yaml").write_text("x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        read_directory(tmp_path)
    with pytest.raises(RepositoryTooLarge):
        read_directory(tmp_path, limits=FileLimits(max_files=3))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
