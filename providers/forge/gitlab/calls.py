"""What GitLab is asked: method and path, the words of an error, and what it takes."""

from dataclasses import dataclass
from typing import Final

_MEMBER: Final = "the scope `api` and membership in the project"
_DEVELOPER: Final = "the scope `api` and the role Developer in the project"
_VISIBLE: Final = "the scope `api` and a group that the token's user may see"


@dataclass(frozen=True, slots=True)
class GitLabCall:
    """Something that can be asked; the path's fields are filled with arguments, in their order."""

    method: str
    path: str
    words: str
    needs: str


_REQUESTS: Final = "/projects/{}/merge_requests"
_NOTES: Final = _REQUESTS + "/{}/notes"
USER: Final = GitLabCall("get", "/user", "say who the token belongs to", _MEMBER)
USERS: Final = GitLabCall("get", "/users", "find a user by name", _MEMBER)
MEMBER: Final = GitLabCall("get", "/projects/{}/members/all/{}", "read somebody's permission", _MEMBER)
GROUP: Final = GitLabCall("get", "/groups/{}", "see who is in a group", _VISIBLE)
GROUP_MEMBER: Final = GitLabCall("get", "/groups/{}/members/all/{}", "see who is in a group", _VISIBLE)
OPEN_REQUESTS: Final = GitLabCall("get", _REQUESTS, "list open merge requests", _MEMBER)
MERGED_REQUESTS: Final = GitLabCall("get", _REQUESTS, "list merged merge requests", _MEMBER)
REQUEST: Final = GitLabCall("get", _REQUESTS + "/{}", "read a merge request", _MEMBER)
REQUESTS_OF_COMMIT: Final = GitLabCall(
    "get", "/projects/{}/repository/commits/{}/merge_requests", "list the merge requests of a commit", _MEMBER
)
APPROVALS: Final = GitLabCall("get", _REQUESTS + "/{}/approvals", "list approvals", _MEMBER)
REVIEWERS: Final = GitLabCall("get", _REQUESTS + "/{}/reviewers", "list reviewers", _MEMBER)
NOTES: Final = GitLabCall("get", _NOTES, "list comments", _MEMBER)
WRITE_NOTE: Final = GitLabCall("post", _NOTES, "write a comment", _MEMBER)
CHANGE_NOTE: Final = GitLabCall("put", _NOTES + "/{}", "change a comment", _MEMBER)
AWARDS: Final = GitLabCall("get", _NOTES + "/{}/award_emoji", "list reactions to a comment", _MEMBER)
AWARD: Final = GitLabCall("post", _NOTES + "/{}/award_emoji", "react to a comment", _MEMBER)
SET_STATUS: Final = GitLabCall("post", "/projects/{}/statuses/{}", "set a commit status", _DEVELOPER)
_DEPLOYMENTS: Final = "/projects/{}/deployments"
DEPLOYMENTS: Final = GitLabCall("get", _DEPLOYMENTS, "list deployments", _DEVELOPER)
DEPLOY: Final = GitLabCall("post", _DEPLOYMENTS, "make a deployment", _DEVELOPER)
CHANGE_DEPLOYMENT: Final = GitLabCall("put", _DEPLOYMENTS + "/{}", "set the status of a deployment", _DEVELOPER)
REQUESTS_FROM: Final = GitLabCall("get", _REQUESTS, "list the merge requests of a branch", _MEMBER)
FILE: Final = GitLabCall("get", "/projects/{}/repository/files/{}", "look at a file of a branch", _DEVELOPER)
COMMIT_FILE: Final = GitLabCall("post", "/projects/{}/repository/commits", "commit a file", _DEVELOPER)
PROPOSE: Final = GitLabCall("post", _REQUESTS, "open a merge request", _DEVELOPER)
CLOSE: Final = GitLabCall("put", _REQUESTS + "/{}", "close a merge request", _DEVELOPER)
