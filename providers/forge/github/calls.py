"""What GitHub is asked: the method of githubkit, the words of an error, and the permission that it takes."""

from dataclasses import dataclass
from typing import Final

_READ: Final = "`Pull requests: read`"
_WRITE: Final = "`Pull requests: read and write`"
_CHECKS: Final = "`Checks: read and write`"
_STATUSES: Final = "`Commit statuses: read and write`"
_METADATA: Final = "`Metadata: read`"


@dataclass(frozen=True, slots=True)
class GitHubCall:
    """Something that can be asked: the method's room and name, in words, and the repository permission it takes."""

    room: str
    method: str
    words: str
    needs: str


USER: Final = GitHubCall("users", "get_authenticated", "say who the token belongs to", _METADATA)
APP: Final = GitHubCall("apps", "get_authenticated", "say which App we are", _METADATA)
OPEN_REQUESTS: Final = GitHubCall("pulls", "list", "list open pull requests", _READ)
REQUEST: Final = GitHubCall("pulls", "get", "read a pull request", _READ)
REQUESTS_OF_COMMIT: Final = GitHubCall(
    "repos", "list_pull_requests_associated_with_commit", "list the pull requests of a commit", _READ
)
PERMISSION: Final = GitHubCall("repos", "get_collaborator_permission_level", "read somebody's permission", _METADATA)
COMMENTS: Final = GitHubCall("issues", "list_comments", "list comments", _READ)
WRITE_COMMENT: Final = GitHubCall("issues", "create_comment", "write a comment", _WRITE)
CHANGE_COMMENT: Final = GitHubCall("issues", "update_comment", "change a comment", _WRITE)
REACT: Final = GitHubCall("reactions", "create_for_issue_comment", "react to a comment", _WRITE)
SET_STATUS: Final = GitHubCall("repos", "create_commit_status", "set a commit status", _STATUSES)
START_CHECK: Final = GitHubCall("checks", "create", "make a check run", _CHECKS)
CHANGE_CHECK: Final = GitHubCall("checks", "update", "add annotations to a check run", _CHECKS)
