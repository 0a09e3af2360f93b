"""Requests of the agent's own: a newer release of a pool's images (`images: ProposeChange`), proposed for review."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from agent.review.world import LastPass, ProposedCommits
from fleet.review.images import ImageProposal, image_proposals, is_open, overtaken
from model.loader import NotRewritable, with_value
from providers.forge.port import Forge, ForgeError, ForgeUnreachable, ProposedChange, PullRequest
from providers.git.errors import SourceError

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ImageProposer:
    """Opens a request for each release that a pool could have its images of, and closes those that it overtakes.

    Branch and request are the memory: what stands on the forge is found again, and one that was closed stays closed.
    """

    cluster: str
    branch: str
    commits: ProposedCommits
    still_leading: Callable[[], None]
    """As of `SectionWriter`."""
    _settled: set[str] = field(default_factory=set)
    """Branches that were proposed once, whatever became of it since; asked of the forge again after a restart."""

    def propose(self, forge: Forge, world: LastPass, opened: Sequence[PullRequest]) -> str:
        """Proposes what is to be proposed; returns why one thing or another cannot be.

        `opened` are the open requests into the branch. Errors: ForgeUnreachable.
        """
        proposals = list(image_proposals(world.fleet, world.snapshot.resolved))
        ours = {it.number: it.branch for it in opened if not it.from_fork}
        trouble = ""
        for number, branch in sorted(ours.items()):
            if overtaken(branch, proposals):
                self.still_leading()
                trouble = self._fenced(branch, partial(forge.close_request, number)) or trouble
        for proposal in proposals:
            if proposal.branch not in self._settled and not is_open(proposal, ours.values()):
                trouble = self._fenced(proposal.branch, partial(self._propose, forge, proposal)) or trouble
        return trouble

    def _propose(self, forge: Forge, proposal: ImageProposal) -> None:
        if not forge.requests_from(proposal.branch):
            base = self.commits.fetch_ref(f"refs/heads/{self.branch}")
            files = self.commits.merged_files(base, base).files
            path, content = with_value(files, proposal.pool, proposal.at, proposal.proposed, cluster=self.cluster)
            if content == files[path]:
                return  # merged, and not in force yet
            self.still_leading()
            change = ProposedChange(proposal.branch, self.branch, base, path, content, proposal.title, proposal.words)
            log.info("images_proposed", pool=proposal.pool, alias=proposal.proposed, request=forge.propose(change))
        self._settled.add(proposal.branch)

    @staticmethod
    def _fenced(branch: str, ask: Callable[[], None]) -> str:
        """What cannot be proposed for one pool keeps nothing else back; returns why."""
        try:
            ask()
        except ForgeUnreachable:
            raise
        except (ForgeError, NotRewritable, SourceError) as error:
            log.warning("images_not_proposed", branch=branch, error=type(error).__name__, why=str(error))
            return f"{branch} cannot be proposed: {error}"
        return ""
