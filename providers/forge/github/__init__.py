"""GitHub and GitHub Enterprise Server behind the port, by githubkit, in version 2022-11-28 of the REST API.

Every Enterprise Server since 3.9 knows that version, and it is the last that tells a pull request's merge commit: later
ones do not (docs.github.com/rest/about-the-rest-api/breaking-changes). GitHub answers in it until March 2028 at least.

What we sign in as needs, of the one repository:

| permission | access | for |
|---|---|---|
| Metadata | read | what somebody may do |
| Contents | read | git itself fetches what is reviewed |
| Pull requests | read and write | requests, comments and reactions to them, where a commit came from |
| Checks | read and write | statuses with annotations; GitHub lets only Apps write them |
| Commit statuses | read and write | statuses of a token, which are without annotations |
| Members (of the organization) | read | who is in a team |

A fine-grained token or an App can be given exactly these; a classic token needs the scope `repo`. Proxies and
certificate authorities are those that httpx takes from the environment (`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`).
"""

from providers.forge.github.adapter import GitHubForge
from providers.forge.github.sign_in import GitHubApp, GitHubToken

__all__ = ["GitHubApp", "GitHubForge", "GitHubToken"]
