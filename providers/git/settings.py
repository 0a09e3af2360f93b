"""Where the fleet repository is, how it is fetched and what is believed of it."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from providers.git.auth import Remote
from providers.git.files import FileLimits
from providers.git.history import HistoryRule
from providers.git.limits import MirrorLimits, ReaderLimits
from providers.git.messages import ReaderStart
from providers.git.selector import Branch, Selector
from providers.git.trust import Verification


@dataclass(frozen=True)
class GitSettings:
    """Where the fleet is declared and how it is fetched. Times in seconds.

    `jitter` spreads polls by that fraction of the interval; after failures the interval doubles up to `max_backoff_s`.
    `credentials` gives the remote anew before each poll, since secrets change; `allow_rewind` are commits that may be
    left behind without a signed statement. Errors: ValueError for values that cannot work or cannot be safe.
    """

    remote: Remote
    cache_dir: Path
    selector: Selector = field(default_factory=Branch)
    sub_path: str = ""
    verification: Verification | None = None
    history: HistoryRule = HistoryRule.FAST_FORWARD
    allow_rewind: frozenset[str] = frozenset()
    interval_s: float = 60.0
    jitter: float = 0.1
    max_backoff_s: float = 900.0
    mirror: MirrorLimits = field(default_factory=MirrorLimits)
    files: FileLimits = field(default_factory=FileLimits)
    reader: ReaderLimits = field(default_factory=ReaderLimits)
    any_owner: bool = False
    credentials: Callable[[], Remote] | None = None

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or not 0 <= self.jitter < 1 or self.max_backoff_s < self.interval_s:
            raise ValueError("interval_s > 0, 0 <= jitter < 1 and max_backoff_s >= interval_s must hold")
        for signers in self.verification.files if self.verification else ():
            self._check_outside(signers.resolve())

    def _check_outside(self, signers: Path) -> None:
        """A list of signers that a push could change would let anybody sign."""
        places = [self.cache_dir, *([Path(self.remote.path)] if self.remote.scheme == "file" else [])]
        if any(signers.is_relative_to(place.resolve()) for place in places):
            raise ValueError(f"the list of signers {signers} lies inside the repository or its cache; keep it outside")

    def start(self, remote: Remote) -> ReaderStart:
        """What the reader process is told first. OpenSSL reads a file of authorities once: its content counts."""
        authorities = ""
        if remote.ca_file is not None:
            with suppress(OSError):
                authorities = hashlib.sha256(remote.ca_file.read_bytes()).hexdigest()
        return ReaderStart(remote, self.cache_dir, self.mirror, self.reader, self.any_owner, authorities)


def mirror_root(cache_dir: Path, remote: Remote) -> Path:
    """Where the mirror of a remote lies: one folder for each address, without the password, which may change."""
    return cache_dir / hashlib.sha256(remote.shown.encode()).hexdigest()[:16]
