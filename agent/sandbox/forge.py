"""The sandbox's forge: the fleet repository's branches as pull requests, an API for the agent, pages for people."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from providers.clock import Clock
from providers.sim.forge import ForgeServer, ForgeState, GitHubDialect, InstalledApp
from providers.sim.forge.contents import GitContents
from providers.sim.forge.hosting import HostedRepository, deliver
from providers.sim.forge.page import ForgePage
from providers.sim.forge.state import Role

OWNER, NAME = "sandbox", "fleet"
PEOPLE: Final[Mapping[str, Role]] = {"ada": "write", "grace": "maintain", "visitor": "read"}
"""Whom the sandbox's user may be on the pages, and their roles; every push is the first one's."""
_APP: Final = 1
_INSTALLATION: Final = 1
_POLL_S: Final = 2.0


class SandboxForge:
    """Serves one bare repository until closed; a context manager. The agent is an App of it, with a key of its own."""

    def __init__(self, folder: Path, bare: Path, clock: Clock, webhook: str, secret: str) -> None:
        self._key_file = folder / "forge-app.pem"
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._key_file.touch(mode=0o600)
        self._key_file.write_bytes(private)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        app = InstalledApp(_APP, "muster", _INSTALLATION, public.decode())
        self.state = ForgeState(OWNER, NAME, clock, app=app)
        author, *_ = [self.state.account(login, role) for login, role in PEOPLE.items()]
        self._deliveries = ThreadPoolExecutor(1, "deliveries")

        def tell(event: str, action: str, number: int) -> None:
            self._deliveries.submit(deliver, webhook, secret, event, action, number)

        hosted = HostedRepository(bare, self.state, author, tell)
        self.state.contents = GitContents(bare, clock.now, hosted.look_at_ours)
        page = ForgePage(hosted)
        self._server = ForgeServer(self.state, GitHubDialect, prefix="/api/v3", pages=page.answer)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()
        self._deliveries.shutdown(cancel_futures=True)

    @property
    def url(self) -> str:
        """Where its pages begin."""
        return self._server.root

    def page_of(self, number: int) -> str:
        """The page of a pull request."""
        return f"{self.url}/{OWNER}/{NAME}/pull/{number}"

    @property
    def review(self) -> dict[str, object]:
        """The section `review` of the agent's settings."""
        return {
            "repository": f"{OWNER}/{NAME}",
            "url": self._server.url,
            "app": {"id": _APP, "installation": _INSTALLATION, "privateKeyFile": str(self._key_file)},
            "pollIntervalS": _POLL_S,
        }

    @property
    def settings(self) -> dict[str, object]:
        """The sections of the agent's settings that are about the forge."""
        return {
            "review": self.review,
            "notifications": {"commitLink": f"{self.url}/{OWNER}/{NAME}/commit/{{commit}}"},
        }
