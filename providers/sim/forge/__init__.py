"""A GitHub to try things on: one repository's requests, comments, statuses and check runs behind a real HTTP server."""

from providers.sim.forge.server import GitHubExchange, GitHubFault, GitHubServer
from providers.sim.forge.state import GitHubAccount, GitHubState, InstalledApp

__all__ = ["GitHubAccount", "GitHubExchange", "GitHubFault", "GitHubServer", "GitHubState", "InstalledApp"]
