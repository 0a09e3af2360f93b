"""GitLab behind the port (gitlab.com and self-managed, 15 or newer), by python-gitlab, in version 4 of its REST API.

A token signs in: of a user, a project or a group, with the scope `api` (GitLab has no narrower one that lets comments
and statuses be written), of a member of the project who is a Developer at least. Whose groups are asked for has to be
visible to it. Proxies are those of the environment (`HTTPS_PROXY`, `NO_PROXY`), and so is the certificate authority
(`SSL_CERT_FILE`).

| the port | GitLab |
|---|---|
| request, its number | merge request, its `iid` |
| comment | note that is not the system's |
| thumb up, thumb down | award emoji `thumbsup`, `thumbsdown` |
| status | commit status, in the pipeline of the commit; it has no annotations |
| permission | access level: Guest to Reporter read, Developer writes, Maintainer and Owner administrate |
| team | group, by its path, with those who inherit membership |
"""

from providers.forge.gitlab.adapter import GitLabForge
from providers.forge.gitlab.sign_in import GitLabToken

__all__ = ["GitLabForge", "GitLabToken"]
