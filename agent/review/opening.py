"""The forge and the commits of a review, as the settings describe them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from agent.config import ReviewSettings, Settings
from agent.fleet_source import open_source, secret_of, text_of
from agent.inbox import Event
from agent.review.approvers import Approvers
from agent.review.forecaster import ForecastBounds, Forecaster
from agent.review.reviewer import Reviewer
from agent.review.world import LastPass
from agent.sync import SyncState
from agent.web.seen import Explain
from providers.clock import Clock
from providers.forge.forgejo import ForgejoForge, ForgejoToken
from providers.forge.github import GitHubApp, GitHubForge, GitHubToken
from providers.forge.gitlab import GitLabForge, GitLabToken
from providers.forge.port import Forge, ForgeError
from providers.git.errors import CredentialsMissing
from providers.git.source import GitSource

SignIn = GitHubToken | GitHubApp | GitLabToken | ForgejoToken
_TOKENS: Final[Mapping[str, type[GitHubToken | GitLabToken | ForgejoToken]]] = {
    "GitHub": GitHubToken,
    "GitLab": GitLabToken,
    "Forgejo": ForgejoToken,
    "Gitea": ForgejoToken,
}


class ReviewPorts(NamedTuple):
    """What a review asks and reads."""

    open_forge: Callable[[], Forge]
    commits: GitSource


def review_ports(settings: Settings, clock: Clock) -> ReviewPorts | None:
    """Returns what a review needs; None where nothing is to be reviewed. Errors: as `open_source`."""
    if settings.review is None:
        return None
    return ReviewPorts(OpenForge(settings.review, clock), commits_of(settings, clock))


@dataclass(frozen=True, slots=True)
class AgentSide:
    """What a review asks the agent that it is a part of, and tells it; all as in `Reviewer`."""

    world: Callable[[], LastPass | None]
    state: Callable[[], SyncState]
    clock: Clock
    count: Callable[[str], None]
    tell: Callable[[Event], None]
    leading: Callable[[], bool]
    wake: Callable[[], None]
    """Has the reviewer look again."""
    explain: Explain


def reviewer_of(settings: Settings, ports: ReviewPorts, agent: AgentSide) -> Reviewer:
    """Returns the reviewer of the branch that the settings follow."""
    every_s = settings.review.poll_interval_s if settings.review else 60.0
    return Reviewer(
        settings.cluster,
        settings.source.ref.branch,
        ports.open_forge,
        ports.commits,
        agent.world,
        agent.state,
        agent.clock,
        every_s,
        agent.count,
        agent.tell,
        Approvers(agent.tell, agent.state().approved),
        settings.least_approvals,
        agent.leading,
        forecaster_of(settings, agent.wake),
        agent.explain,
    )


def forecaster_of(settings: Settings, wake: Callable[[], None]) -> Forecaster | None:
    """Returns who has forecasts made; None where nothing is recorded, or none are wanted."""
    if settings.review is None or settings.record is None or not settings.review.forecast.days:
        return None
    said = settings.review.forecast
    bounds = ForecastBounds(
        settings.record.absolute(), settings.region, said.days, said.within_s, said.memory_mib * 2**20
    )
    return Forecaster(bounds, wake)


def commits_of(settings: Settings, clock: Clock) -> GitSource:
    """Returns the repository once more, in a cache and with a reader process of its own.

    What a stranger pushed is fetched there only, and cannot cost what the revisions in force need.
    """
    source = settings.source.model_copy(update={"cache_dir": settings.source.cache_dir / "review"})
    return open_source(settings.model_copy(update={"source": source}), clock)


@dataclass(slots=True)
class OpenForge:
    """Opens the forge of the settings, anew where its secret is another than before."""

    settings: ReviewSettings
    clock: Clock
    _known: tuple[SignIn, Forge] | None = None

    def __call__(self) -> Forge:
        """Returns the forge. Errors: ForgeError, which names a setting that is missing."""
        try:
            sign_in = _sign_in(self.settings)
        except CredentialsMissing as error:
            raise ForgeError(str(error)) from error
        if self._known is None or self._known[0] != sign_in:
            self._known = sign_in, _forge(self.settings, sign_in, self.clock)
        return self._known[1]


def _forge(said: ReviewSettings, sign_in: SignIn, clock: Clock) -> Forge:
    more = {"url": said.url} if said.url else {}
    match sign_in:
        case GitLabToken():
            return GitLabForge(said.repository, sign_in, clock=clock, **more)
        case ForgejoToken():
            return ForgejoForge(said.repository, sign_in, clock=clock, url=said.url)
        case GitHubToken() | GitHubApp():
            return GitHubForge(said.repository, sign_in, clock=clock, **more)


def _sign_in(said: ReviewSettings) -> SignIn:
    if said.app is not None:
        key = text_of("review.app.privateKeyFile", said.app.private_key_file)
        return GitHubApp(said.app.id, key, said.app.installation)
    secret = secret_of("review.token", said.token_env, said.token_file)
    return _TOKENS[said.forge](secret)
