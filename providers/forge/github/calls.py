"""What GitHub is asked: the method of githubkit, the words of an error, and the permission that it takes."""

from dataclasses import dataclass
from typing import Final

_READ: Final = "repository permission `Pull requests: read`"
_WRITE: Final = "repository permission `Pull requests: read and write`"
_CHECKS: Final = "repository permission `Checks: read and write`"
_STATUSES: Final = "repository permission `Commit statuses: read and write`"
_DEPLOYMENTS: Final = "repository permission `Deployments: read and write`"
_CONTENTS: Final = "repository permission `Contents: read and write`"
_METADATA: Final = "repository permission `Metadata: read`"
_MEMBERS: Final = "organization permission `Members: read`"


@dataclass(frozen=True, slots=True)
class GitHubCall:
    """Something that can be asked: the method's room and name, in words, and the permission it takes."""

    room: str
    method: str
    words: str
    needs: str
    is_ours: bool = True
    """Whether it is asked of the repository."""


USER: Final = GitHubCall("users", "get_authenticated", "say who the token belongs to", _METADATA, is_ours=False)
APP: Final = GitHubCall("apps", "get_authenticated", "say which App we are", _METADATA, is_ours=False)
OPEN_REQUESTS: Final = GitHubCall("pulls", "list", "list open pull requests", _READ)
CLOSED_REQUESTS: Final = GitHubCall("pulls", "list", "list closed pull requests", _READ)
REQUEST: Final = GitHubCall("pulls", "get", "read a pull request", _READ)
REQUESTS_OF_COMMIT: Final = GitHubCall(
    "repos", "list_pull_requests_associated_with_commit", "list the pull requests of a commit", _READ
)
PERMISSION: Final = GitHubCall("repos", "get_collaborator_permission_level", "read somebody's permission", _METADATA)
_SEE_MEMBER: Final = "see who is in a team that owns files"
MEMBERSHIP: Final = GitHubCall("teams", "get_membership_for_user_in_org", _SEE_MEMBER, _MEMBERS, is_ours=False)
TEAM: Final = GitHubCall("teams", "get_by_name", _SEE_MEMBER, _MEMBERS, is_ours=False)
REVIEWS: Final = GitHubCall("pulls", "list_reviews", "list reviews", _READ)
COMMENTS: Final = GitHubCall("issues", "list_comments", "list comments", _READ)
WRITE_COMMENT: Final = GitHubCall("issues", "create_comment", "write a comment", _WRITE)
CHANGE_COMMENT: Final = GitHubCall("issues", "update_comment", "change a comment", _WRITE)
REACT: Final = GitHubCall("reactions", "create_for_issue_comment", "react to a comment", _WRITE)
SET_STATUS: Final = GitHubCall("repos", "create_commit_status", "set a commit status", _STATUSES)
START_CHECK: Final = GitHubCall("checks", "create", "make a check run", _CHECKS)
CHANGE_CHECK: Final = GitHubCall("checks", "update", "add annotations to a check run", _CHECKS)
DEPLOYMENTS: Final = GitHubCall("repos", "list_deployments", "list deployments", _DEPLOYMENTS)
DEPLOY: Final = GitHubCall("repos", "create_deployment", "make a deployment", _DEPLOYMENTS)
DEPLOYMENT_STATUSES: Final = GitHubCall(
    "repos", "list_deployment_statuses", "list the statuses of a deployment", _DEPLOYMENTS
)
TELL_DEPLOYMENT: Final = GitHubCall("repos", "create_deployment_status", "set the status of a deployment", _DEPLOYMENTS)
REQUESTS_FROM: Final = GitHubCall("pulls", "list", "list the pull requests of a branch", _READ)
FILE: Final = GitHubCall("repos", "get_content", "look at a file of a branch", _CONTENTS)
MAKE_BRANCH: Final = GitHubCall("git", "create_ref", "make a branch", _CONTENTS)
WRITE_FILE: Final = GitHubCall("repos", "create_or_update_file_contents", "commit a file", _CONTENTS)
PROPOSE: Final = GitHubCall("pulls", "create", "open a pull request", _WRITE)
CLOSE: Final = GitHubCall("pulls", "update", "close a pull request", _WRITE)
