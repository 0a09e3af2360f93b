"""What GitLab's REST API tells (version 4)."""

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from providers.sim.forge.contents import blob_of
from providers.sim.forge.dialect import (
    Document,
)
from providers.sim.forge.state import (
    ForgeAccount,
    ForgeState,
    StoredComment,
    StoredDeployment,
    StoredRequest,
    StoredReview,
    StoredStatus,
)

_REVIEWS: Final = {
    "APPROVED": "approved",
    "CHANGES_REQUESTED": "requested_changes",
    "COMMENTED": "reviewed",
    "DISMISSED": "unreviewed",
}
_GHOST: Final = ForgeAccount(3, "ghost1")


def stamp(at_s: float) -> str:
    """Returns a time as GitLab writes it."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class GitLabDocuments:
    """Writes the state as answers of a server whose pages are at `web`."""

    def __init__(self, state: ForgeState, web: str) -> None:
        self._state = state
        self._web = web
        self._page = f"{web}/{state.owner.login}/{state.name}"

    def user(self, account: ForgeAccount | None) -> Document:
        """A user as others see them."""
        account = account or _GHOST
        return {
            "id": account.id,
            "username": account.login,
            "name": account.login,
            "state": "active",
            "locked": False,
            "avatar_url": f"{self._web}/avatars/{account.id}",
            "web_url": f"{self._web}/{account.login}",
        }

    def member(self, account: ForgeAccount, level: int, state: str = "active") -> Document:
        """A member of a project or group."""
        told = {"access_level": level, "created_at": stamp(0), "expires_at": None, "membership_state": "active"}
        return {**self.user(account), **told, "state": state}

    def group(self, path: str) -> Document:
        """A group."""
        return {
            "id": 7000 + len(path),
            "web_url": f"{self._web}/groups/{path}",
            "name": path.rpartition("/")[2],
            "avatar_url": None,
            "full_name": path.replace("/", " / "),
            "full_path": path,
        }

    def request(self, request: StoredRequest, *, whole: bool) -> Document:
        """A merge request of a list, or alone."""
        is_merged, number = request.merged_at_s is not None, request.number
        fork = {None: self._state.id, 0: None}.get(request.fork, request.fork)
        at = f"!{number}"
        merger = self.user(request.merged_by) if request.merged_by else None
        document: Document = {
            **dict.fromkeys(("closed_by", "assignee", "milestone", "discussion_locked")),
            **dict.fromkeys(
                ("should_remove_source_branch", "squash_commit_sha", "description", "approvals_before_merge")
            ),
            **dict.fromkeys(("user_notes_count", "upvotes", "downvotes"), 0),
            **dict.fromkeys(
                ("draft", "work_in_progress", "merge_when_pipeline_succeeds", "squash", "squash_on_merge", "imported"),
                False,
            ),
            "id": 10_000 + number,
            "iid": number,
            "project_id": self._state.id,
            "title": request.title,
            "state": _state(request),
            "created_at": stamp(request.created_at_s),
            "updated_at": stamp(request.updated_at_s),
            "prepared_at": stamp(request.created_at_s),
            "merged_by": merger,
            "merge_user": merger,
            "merged_at": _stamp_or_none(request.merged_at_s),
            "closed_at": None if is_merged else _stamp_or_none(request.closed_at_s),
            "target_branch": request.base,
            "source_branch": request.head_branch,
            "author": self.user(request.author),
            "assignees": [],
            "reviewers": [],
            "source_project_id": fork,
            "target_project_id": self._state.id,
            "labels": [],
            "imported_from": "none",
            "merge_status": "can_be_merged",
            "detailed_merge_status": "not_open" if request.closed_at_s else "mergeable",
            "sha": request.head,
            "merge_commit_sha": request.merge_commit if is_merged else None,
            "force_remove_source_branch": False,
            "reference": at,
            "references": {"short": at, "relative": at, "full": f"{self._state.owner.login}/{self._state.name}{at}"},
            "web_url": f"{self._page}/-/merge_requests/{number}",
            "time_stats": {
                "time_estimate": 0,
                "total_time_spent": 0,
                "human_time_estimate": None,
                "human_total_time_spent": None,
            },
            "task_completion_status": {"count": 0, "completed_count": 0},
            "has_conflicts": False,
            "blocking_discussions_resolved": True,
        }
        return {**document, **self._more(request)} if whole else document

    def file(self, path: str, ref: str, content: bytes, commit: str) -> Document:
        """A file with its content."""
        return {
            "file_name": path.rpartition("/")[2],
            "file_path": path,
            "size": len(content),
            "encoding": "base64",
            "content": base64.b64encode(content).decode(),
            "content_sha256": hashlib.sha256(content).hexdigest(),
            "ref": ref,
            "blob_id": blob_of(content),
            "commit_id": commit,
            "last_commit_id": commit,
        }

    def commit(self, commit: str, words: str, at_s: float) -> Document:
        """A commit that has been made."""
        return {
            "id": commit,
            "short_id": commit[:8],
            "message": words,
            "title": words.partition("\n")[0],
            "author_email": "muster@example.com",
            "author_name": "muster",
            "created_at": stamp(at_s),
            "web_url": f"{self._page}/-/commit/{commit}",
        }

    def approvals(self, request: StoredRequest, given: Mapping[int, StoredReview]) -> Document:
        """Who approves a merge request, with since when, as GitLab tells since 17."""
        approved = [
            {"user": self.user(review.author), "approved_at": stamp(review.submitted_at_s)} for review in given.values()
        ]
        return {
            "id": 10_000 + request.number,
            "iid": request.number,
            "project_id": self._state.id,
            "title": request.title,
            "description": "",
            "state": _state(request),
            "created_at": stamp(request.created_at_s),
            "updated_at": stamp(request.updated_at_s),
            "merge_status": "can_be_merged",
            "approved": True,
            "approvals_required": 0,
            "approvals_left": 0,
            "approved_by": approved,
        }

    def reviewer(self, review: StoredReview) -> Document:
        """Somebody who gave a review."""
        at = stamp(review.submitted_at_s)
        return {"user": self.user(review.author), "state": _REVIEWS[review.state], "created_at": at}

    def note(self, comment: StoredComment, *, system: bool = False) -> Document:
        """A note."""
        return {
            "id": comment.id,
            "type": None,
            "body": comment.body,
            "author": self.user(comment.author),
            "created_at": stamp(comment.created_at_s),
            "updated_at": stamp(comment.updated_at_s),
            "system": system,
            "noteable_id": 10_000 + comment.number,
            "noteable_type": "MergeRequest",
            "noteable_iid": comment.number,
            "project_id": self._state.id,
            "resolvable": False,
            "confidential": False,
            "internal": False,
            "imported": False,
            "imported_from": "none",
            "commands_changes": {},
        }

    def award(self, comment: StoredComment, account: ForgeAccount, name: str, number: int) -> Document:
        """A reaction."""
        at = stamp(self._state.clock.now())
        return {
            "id": number,
            "name": name,
            "user": self.user(account),
            "created_at": at,
            "updated_at": at,
            "awardable_id": comment.id,
            "awardable_type": "Note",
            "url": None,
        }

    def status(self, status: StoredStatus, ref: str) -> Document:
        """A commit status."""
        return {
            "id": status.id,
            "sha": status.commit,
            "ref": ref,
            "status": status.state,
            "name": status.context,
            "target_url": status.target_url,
            "description": status.description,
            "created_at": stamp(status.created_at_s),
            "started_at": None,
            "finished_at": None,
            "allow_failure": False,
            "coverage": None,
            "pipeline_id": 1,
            "author": self.user(status.creator),
        }

    def deployment(self, made: StoredDeployment) -> Document:
        """A deployment by the API, which is no job's."""
        at, (number, state, _, _) = stamp(made.created_at_s), made.statuses[-1]
        environment = {"id": made.id, "name": made.environment, "slug": "slug", "external_url": None}
        return {
            "id": made.id,
            "iid": number,
            "ref": "main",
            "sha": made.commit,
            "created_at": at,
            "updated_at": at,
            "status": state,
            "user": self.user(made.creator),
            "deployable": None,
            "environment": {**environment, "created_at": at, "updated_at": at},
        }

    def _more(self, request: StoredRequest) -> Document:
        nothing = ("latest_build_started_at", "latest_build_finished_at", "first_deployed_to_production_at")
        return {
            **dict.fromkeys((*nothing, "pipeline", "head_pipeline", "merge_error")),
            "subscribed": False,
            "changes_count": "1",
            "diff_refs": {"base_sha": request.base_commit, "head_sha": request.head, "start_sha": request.base_commit},
            "first_contribution": False,
            "user": {"can_merge": True},
        }


def _state(request: StoredRequest) -> str:
    if request.merged_at_s is not None:
        return "merged"
    return "opened" if request.closed_at_s is None else "closed"


def _stamp_or_none(at_s: float | None) -> str | None:
    return None if at_s is None else stamp(at_s)
