"""What Forgejo is asked: the method of pyforgejo, the words of an error, and what it takes."""

from dataclasses import dataclass
from typing import Final

_READ: Final = "the scope `read:repository`"
_ADMIN: Final = "the scope `read:repository` and the right to administrate the repository"
_ISSUES: Final = "the scope `write:issue`"
_STATUSES: Final = "the scope `write:repository` and the right to write in the repository"
_TEAMS: Final = "the scope `read:organization` and membership in the organization"


@dataclass(frozen=True, slots=True)
class ForgejoCall:
    """Something that can be asked: the method's room and name, in words, and what it takes."""

    room: str
    method: str
    words: str
    needs: str
    is_ours: bool = True
    """Whether it is asked of the repository."""


_SEE_TEAM: Final = "see who is in a team"
USER: Final = ForgejoCall("user", "get_current", "say who the token belongs to", "the scope `read:user`", is_ours=False)
OPEN_REQUESTS: Final = ForgejoCall("repository", "repo_list_pull_requests", "list open pull requests", _READ)
CLOSED_REQUESTS: Final = ForgejoCall("repository", "repo_list_pull_requests", "list closed pull requests", _READ)
REQUEST: Final = ForgejoCall("repository", "repo_get_pull_request", "read a pull request", _READ)
REQUEST_OF_COMMIT: Final = ForgejoCall(
    "repository", "repo_get_commit_pull_request", "find the pull request of a commit", _READ
)
COMMIT: Final = ForgejoCall("repository", "repo_get_single_commit", "read a commit", _READ)
PERMISSION: Final = ForgejoCall("repository", "repo_get_repo_permissions", "read somebody's permission", _ADMIN)
TEAMS: Final = ForgejoCall("organization", "team_search", _SEE_TEAM, _TEAMS, is_ours=False)
TEAM_MEMBER: Final = ForgejoCall("organization", "org_list_team_member", _SEE_TEAM, _TEAMS, is_ours=False)
REVIEWS: Final = ForgejoCall("repository", "repo_list_pull_reviews", "list reviews", _READ)
COMMENTS: Final = ForgejoCall("issue", "get_comments", "list comments", _ISSUES)
WRITE_COMMENT: Final = ForgejoCall("issue", "create_comment", "write a comment", _ISSUES)
CHANGE_COMMENT: Final = ForgejoCall("issue", "edit_comment", "change a comment", _ISSUES)
REACT: Final = ForgejoCall("issue", "post_comment_reaction", "react to a comment", _ISSUES)
SET_STATUS: Final = ForgejoCall("repository", "repo_create_status", "set a commit status", _STATUSES)
_WRITE: Final = "the scopes `write:repository` and `write:issue`, and the right to write in the repository"
FILE: Final = ForgejoCall("repository", "repo_get_contents", "look at a file of a branch", _READ)
COMMIT_FILE: Final = ForgejoCall("repository", "repo_update_file", "commit a file", _WRITE)
PROPOSE: Final = ForgejoCall("repository", "repo_create_pull_request", "open a pull request", _WRITE)
CLOSE: Final = ForgejoCall("repository", "repo_edit_pull_request", "close a pull request", _WRITE)
