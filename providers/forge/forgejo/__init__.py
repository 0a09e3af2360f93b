"""Forgejo and Gitea behind the port, by pyforgejo, in version 1 of the REST API that both serve.

A token signs in, of a user who administrates the repository: nobody else may ask what others may do in it. Scopes:

| scope | for |
|---|---|
| `write:repository` | requests, reviews, statuses, where a commit came from, what somebody may do |
| `write:issue` | comments, and reactions to them |
| `read:user` | who we are |
| `read:organization` | who is in a team |

Proxies and certificate authorities are those that httpx takes from the environment (`HTTPS_PROXY`, `NO_PROXY`,
`SSL_CERT_FILE`). Neither forge has rate limits; those of a proxy before it are heeded.
"""

from providers.forge.forgejo.adapter import ForgejoForge
from providers.forge.forgejo.sign_in import ForgejoToken

__all__ = ["ForgejoForge", "ForgejoToken"]
