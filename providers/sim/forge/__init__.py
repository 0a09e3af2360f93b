"""Forges to try things on: requests, comments and statuses of one repository, told over HTTP as each forge does."""

from providers.sim.forge.forgejo import ForgejoDialect
from providers.sim.forge.github.routes import GitHubDialect
from providers.sim.forge.gitlab.routes import GitLabDialect
from providers.sim.forge.server import ForgeExchange, ForgeFault, ForgeServer
from providers.sim.forge.state import ForgeAccount, ForgeState, InstalledApp

__all__ = [
    "ForgeAccount",
    "ForgeExchange",
    "ForgeFault",
    "ForgeServer",
    "ForgeState",
    "ForgejoDialect",
    "GitHubDialect",
    "GitLabDialect",
    "InstalledApp",
]
