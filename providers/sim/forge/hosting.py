"""The git side of a pretended forge: branches of a bare repository as pull requests, their diffs and their merges."""

import hashlib
import hmac
import json
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple

import pygit2

from model.plain_text import plain
from providers.git.errors import MergeConflict
from providers.git.opening import open_repository
from providers.git.tree import merge_tree
from providers.sim.forge.contents import ForgeErrorAnswer
from providers.sim.forge.state import ForgeAccount, ForgeState, StoredRequest

FILES_MOST: Final = 100
"""Files of a diff that are shown."""
LINES_MOST: Final = 3000
"""Lines of a diff that are shown, over all its files."""
FILE_MOST_BYTES: Final = 512 * 1024
TITLE_MOST: Final = 200
FORK: Final = 2000
"""The repository, by its id, of those who may not write in ours."""
_HEADS: Final = "refs/heads/"
_MAY_PUSH: Final = frozenset({"admin", "maintain", "write"})
_DELIVERY_TIMEOUT_S: Final = 5.0

Deliver = Callable[[str, str, int], None]
"""Tells whoever has asked for it of an event: its name, what was done, and the number of the request (0 of none)."""


def deliver(url: str, secret: str, event: str, action: str, number: int) -> None:
    """Delivers an event as GitHub does (docs.github.com/webhooks): signed, once, whoever hears of it or not."""
    body = json.dumps({"action": action, "number": number}).encode()
    proof = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"Content-Type": "application/json", "X-GitHub-Event": event, "X-Hub-Signature-256": f"sha256={proof}"}
    try:
        request = urllib.request.Request(url, body, headers)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=_DELIVERY_TIMEOUT_S):  # noqa: S310 - loopback
            pass
    except (OSError, HTTPException):  # nobody is there: GitHub does not try again either
        pass


class DiffLine(NamedTuple):
    """A line of a diff. `sign` is one of `+`, `-`, ` ` and `@`; `number` counts in the head, 0 for one not in it."""

    sign: str
    number: int
    text: str


class FileDiff(NamedTuple):
    """What a request changes in one file; `note` says why lines are left out, where they are."""

    path: str
    change: str
    lines: Sequence[DiffLine]
    note: str = ""


class HostedCommit(NamedTuple):
    """A commit: what it says of itself, and what it changes since its (first) parent."""

    id: str
    subject: str
    author: str
    at_s: float
    files: Sequence[FileDiff]


@dataclass(frozen=True, slots=True)
class HostedRepository:
    """A bare repository whose branches are requests to be merged into one of them.

    Git says what is pushed: `look` compares the branches with the requests, so that a push that was not told of is
    found with the next. Who pushed is not known on a local path; `author` stands for everybody but the forge's App, and
    but for those in whose name a branch is pushed (`LOGIN/...`). Who may not write has pushed to a fork.
    """

    path: Path
    state: ForgeState
    author: ForgeAccount
    deliver: Deliver
    base: str = "main"

    def look_at_ours(self) -> None:
        """The App has written a branch: a request of it is the App's."""
        self.look(self.state.bot)

    def look(self, pusher: ForgeAccount | None = None) -> Sequence[StoredRequest]:
        """Open, move and close requests as the branches are now; returns those that a push has opened or moved.

        A branch with commits that the base has not is a request; one whose commits the base has by now was merged by
        hand, and one that is gone, or has nothing left, was closed. A request that was closed comes back with further
        commits only.
        """
        with self.state.lock:
            repository = open_repository(self.path)
            heads = dict(_branches(repository))
            self._know(repository, heads.values())
            tip = heads.pop(self.base, None)
            if tip is None:
                return ()
            events = list(self._judged(repository, heads, tip, pusher))
        self.deliver("push", "", 0)
        for action, request in events:
            self.deliver("pull_request", action, request.number)
        return [request for action, request in events if action != "closed"]

    def _judged(
        self, repository: Any, heads: dict[str, str], tip: str, pusher: ForgeAccount | None
    ) -> Iterator[tuple[str, StoredRequest]]:
        """Changes the requests, and yields what was done to which."""
        for request in [it for it in self.state.requests.values() if it.closed_at_s is None]:
            head = heads.get(request.head_branch)
            landed = _has(repository, tip, request.head)
            if landed or head is None or _has(repository, tip, head):
                self.state.close(request.number, merge_commit=tip if landed else None, by=self.author)
                yield "closed", request
            elif head != request.head:
                self.state.push(request.number, head)
                self._moved(repository, request, tip)
                yield "synchronize", request
        known = {(it.head_branch, it.head) for it in self.state.requests.values()}
        open_now = {it.head_branch for it in self.state.requests.values() if it.closed_at_s is None}
        for branch, head in sorted(heads.items()):
            if branch not in open_now and (branch, head) not in known and not _has(repository, tip, head):
                title = _subject(repository, head) or branch
                author = pusher or self._named(branch)
                fork = None if pusher or self.state.roles[author.login] in _MAY_PUSH else FORK
                request = self.state.open(title, author, head, base=self.base, branch=branch, fork=fork)
                self._moved(repository, request, tip)
                yield "opened", request

    def _named(self, branch: str) -> ForgeAccount:
        """In whose name a branch is pushed."""
        login, named, _ = branch.partition("/")
        return self.state.accounts[login] if named and login in self.state.roles else self.author

    def _moved(self, repository: Any, request: StoredRequest, tip: str) -> None:
        request.base_commit = tip
        repository.references.create(f"refs/pull/{request.number}/head", request.head, force=True)

    def _know(self, repository: Any, tips: Iterable[str]) -> None:
        """Every commit that was pushed may be asked for."""
        for tip in tips:
            if tip not in self.state.commits:
                self.state.commits |= {str(commit.id) for commit in repository.walk(tip)}

    def merge(self, number: int, account: ForgeAccount) -> None:
        """Merges a request into its base, by a merge commit of this account.

        Errors: ForgeErrorAnswer, 405 where it is closed, is there already or conflicts.
        """
        with self.state.lock:  # whoever asks for the merge commit hears of it with the branch
            repository, request = open_repository(self.path), self.state.requests[number]
            tip = dict(_branches(repository)).get(request.base, "")
            if request.closed_at_s is not None or not tip:
                raise ForgeErrorAnswer(405, "Pull Request is not mergeable: it is closed, or its base is gone")
            try:
                tree = merge_tree(repository, tip, request.head)
            except MergeConflict as error:
                raise ForgeErrorAnswer(405, f"Pull Request is not mergeable: {error}") from error
            at = pygit2.Signature(account.login, f"{account.login}@example.com", int(self.state.clock.now()), 0)
            words = f"Merge pull request #{number} from {request.head_branch}\n\n{request.title}\n"
            try:
                made = repository.create_commit(f"{_HEADS}{request.base}", at, at, words, tree, [tip, request.head])
            except pygit2.GitError as error:
                raise ForgeErrorAnswer(405, "Base branch was modified. Review and try the merge again.") from error
            request.base_commit = tip
            self.state.close(number, merge_commit=str(made), by=account)
        self.deliver("push", "", 0)
        self.deliver("pull_request", "closed", number)

    def diff(self, request: StoredRequest) -> Iterator[FileDiff]:
        """Yields what a request changes since it and its base went apart, by path."""
        repository = open_repository(self.path)
        before = repository.merge_base(request.base_commit, request.head)
        head = repository[request.head].tree
        found = head.diff_to_tree(swap=True) if before is None else repository.diff(repository[before].tree, head)
        yield from _told(repository, found)

    def commit(self, text: str) -> HostedCommit | None:
        """Returns a commit that was pushed, by its whole id, with what it changes; None where there is none."""
        with self.state.lock:
            if text not in self.state.commits:
                return None
        repository = open_repository(self.path)
        found = repository[text]
        before = found.parents[0].tree if found.parents else None
        diff = found.tree.diff_to_tree(swap=True) if before is None else repository.diff(before, found.tree)
        files = tuple(_told(repository, diff))
        return HostedCommit(text, _subject(repository, text), plain(found.author.name), found.commit_time, files)


def _told(repository: Any, found: Any) -> Iterator[FileDiff]:
    """Yields the files of a diff, by path."""
    found.find_similar()
    deltas, left = list(found.deltas), LINES_MOST
    for index, delta in enumerate(deltas[:FILES_MOST]):
        path = delta.new_file.raw_path.decode("utf-8", "backslashreplace")
        change = delta.status.name.lower()
        if any(_size(repository, side.id) > FILE_MOST_BYTES for side in (delta.old_file, delta.new_file)):
            yield FileDiff(path, change, (), f"larger than {FILE_MOST_BYTES // 1024} KiB")
            continue
        lines = list(_lines(found[index]))[: LINES_MOST + 1]
        note = "binary, or nothing but its mode" if not lines else ""
        yield FileDiff(path, change, lines[:left], "more lines are left out" if len(lines) > left else note)
        left = max(0, left - len(lines))
    if len(deltas) > FILES_MOST:
        yield FileDiff(f"{len(deltas) - FILES_MOST} more files", "left out", ())


def _branches(repository: Any) -> Iterator[tuple[str, str]]:
    """Yields (name, commit); a name that is no text comes escaped, and the same one always the same."""
    for reference in repository.references.iterator():
        name = reference.raw_name.decode("utf-8", "backslashreplace")
        if name.startswith(_HEADS):
            yield name.removeprefix(_HEADS), str(reference.peel(pygit2.Commit).id)


def _has(repository: Any, tip: str, head: str) -> bool:
    """Whether a commit is in the history of another."""
    return tip == head or bool(repository.descendant_of(tip, head))


def _subject(repository: Any, commit: str) -> str:
    said = repository[commit].raw_message.decode("utf-8", "replace")
    return plain(said.strip().partition("\n")[0])[:TITLE_MOST]


def _size(repository: Any, oid: Any) -> int:
    return 0 if not int(str(oid), 16) else int(repository.odb.read_header(oid)[1])


def _lines(patch: Any) -> Iterator[DiffLine]:
    for hunk in patch.hunks:
        yield DiffLine("@", 0, hunk.header.strip())
        for line in hunk.lines:
            if line.origin in "+- ":
                text = line.raw_content.decode("utf-8", "replace").rstrip("\r\n")
                yield DiffLine(line.origin, max(0, line.new_lineno), text)
