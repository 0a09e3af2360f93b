"""`muster diff` and `muster rollback`: what the newest revision, or an earlier one, would do in the agent's world."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from agent.cli import exits
from agent.cli.operate import NotOperable, SyncHandle, SyncPlace, SyncView, answered, shortened
from agent.cli.plan import PlanRequest, run_plan
from model.loader import clusters_in
from model.plain_text import plain_block
from providers.git.errors import RevisionNotFound, SourceError
from providers.git.local import LocalRepository, open_local


@dataclass(frozen=True, slots=True)
class FleetClone:
    """The clone of the fleet repository on this machine; `region` is that of the prices, empty = of the zones."""

    repository: Path
    path: str = ""
    """Folder of the fleet inside it; empty = the one that the agent reads, where the clone has it."""
    region: str = ""


def diff(place: SyncPlace, clone: FleetClone, ref: str, output: str, *, detailed_exitcode: bool) -> int:
    """Print what would change if `ref`, or the newest revision that the agent has seen, came into force."""

    def answer(sync: SyncHandle) -> int:
        view = _in_force(sync)
        head = ref or view.observed
        if not ref and head == view.applied:
            exits.complain(f"{head} is in force, and the newest that the agent has seen")
        _known(clone, view, head)
        return run_plan(_request(place, clone, view, head, merge=True), output, detailed_exitcode=detailed_exitcode)

    return answered(place, answer)


def rollback(place: SyncPlace, clone: FleetClone, revision: str) -> int:
    """Print what going back to an earlier revision would do, and what to push for it; the exit code of the plan."""

    def answer(sync: SyncHandle) -> int:
        view = _in_force(sync)
        oid = _earlier(clone, view, revision)
        code = run_plan(_request(place, clone, view, oid, merge=False), "text", detailed_exitcode=False)
        if code in (exits.OK, exits.REFUSED):
            sys.stdout.write(plain_block(_steps(clone, view, oid)))
        return code

    return answered(place, answer)


def _in_force(sync: SyncHandle) -> SyncView:
    view = sync.look()
    if not view.applied:
        raise NotOperable("no revision is in force on the cluster yet")
    return view


def _request(place: SyncPlace, clone: FleetClone, view: SyncView, head: str, *, merge: bool) -> PlanRequest:
    return PlanRequest(
        clone.repository,
        view.applied,
        head,
        _path(clone, view),
        True,
        place.kubeconfig,
        place.context,
        clone.region,
        merge,
    )


def _path(clone: FleetClone, view: SyncView) -> str:
    return clone.path or (view.spec.path if view.spec.path and (clone.repository / view.spec.path).is_dir() else "")


def _known(clone: FleetClone, view: SyncView, *revisions: str) -> LocalRepository:
    """The clone, which has what is in force and the revisions. Errors: NotOperable."""
    try:
        repository = open_local(clone.repository)
    except SourceError as error:
        raise NotOperable(f"{error}; run it in a clone of the fleet repository, or name one") from error
    for revision in (view.applied, *revisions):
        try:
            repository.resolve(revision)
        except RevisionNotFound as error:
            raise NotOperable(f"{error}; `git fetch` in {clone.repository} brings what was pushed meanwhile") from error
    return repository


def _earlier(clone: FleetClone, view: SyncView, revision: str) -> str:
    """The commit that is meant. Errors: NotOperable where it is none that was left behind."""
    repository, applied = _known(clone, view, revision), view.applied
    oid = repository.resolve(revision)
    if oid == repository.resolve(applied):
        raise NotOperable(f"{applied} is in force already")
    if not repository.contains(oid, applied):
        raise NotOperable(f"{revision} is not in the history of {applied}: there is nothing to go back to")
    return oid


_SHARED = (
    "\nThe repository holds several clusters, and this takes back the files of all of them. To leave others as\n"
    "they are, restore the folders that are meant instead of all, and plan what that comes to.\n"
)


def _steps(clone: FleetClone, view: SyncView, oid: str) -> str:
    """The commands that make the branch's files those of the commit again, by a commit of their own."""
    branch = shlex.quote(view.spec.reference)
    folder = shlex.quote(view.spec.path) if view.spec.path else "."
    sign = "-S " if view.status.verified_signer else ""
    repository = open_local(clone.repository)
    root, shared = repository.root, clusters_in(repository.snapshot(oid).files).any
    message = shlex.quote(f"Go back to {oid[:12]}")
    lines = (
        f"git -C {shlex.quote(str(root))} switch {branch}",
        f"git -C {shlex.quote(str(root))} pull --ff-only",
        f"git -C {shlex.quote(str(root))} restore --source={oid} --staged --worktree -- {folder}",
        f"git -C {shlex.quote(str(root))} commit {sign}-m {message}",
        f"git -C {shlex.quote(str(root))} push origin {branch}",
    )
    return (
        f"\nThe repository is what counts: the way back from {shortened(view.applied)} is a commit, planned,\n"
        "held against the guard rails and shown like any other. Until it is pushed nothing changes:\n\n"
        + "".join(f"    {line}\n" for line in lines)
        + (_SHARED if shared else "")
    )
