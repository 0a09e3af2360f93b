"""The ports of the agent: small protocols that the adapters (aws, kube, git, sim) implement."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # commands that read files know its errors, and nothing of what is observed
    from fleet.markets import PastPrice
    from fleet.snapshot import (
        CapacityPool,
        Catalog,
        Instance,
        LaunchConfiguration,
        LaunchOutcome,
        LaunchRequest,
        Notice,
        Reservation,
        Resolved,
    )


class CloudError(Exception):
    """A call to the cloud failed. `transient` tells whether the same call may succeed later."""

    transient: bool = True


class CloudThrottled(CloudError):
    """Too many calls; honour the pause before the next one."""


class CloudUnreachable(CloudError):
    """No answer, or a server error: nothing is known about what the call did."""


class CloudDenied(CloudError):
    """Credentials or permissions do not suffice; only an operator can help."""

    transient = False


class CloudRejected(CloudError):
    """The request itself is wrong and stays wrong."""

    transient = False


class Cloud(Protocol):
    """A cloud sells, lists and takes back machines. Adapters translate and decide nothing; errors are `CloudError`s."""

    def catalog(self) -> "Catalog":
        """Types, offers and prices as known now; cheap to call (cached), see `refresh`."""
        ...

    def refresh(self) -> "Catalog":
        """Re-read types, zones and prices where reachable; keeps what it had where not."""
        ...

    def spot_history(
        self, pools: "Collection[CapacityPool]", begin_s: float, end_s: float
    ) -> "Mapping[CapacityPool, Sequence[PastPrice]]":
        """What spot machines of these pools cost in a past time (epoch seconds), in order of time.

        The first is the price in force at `begin_s`, where the cloud still knows it. A pool of which it knows nothing
        is missing.
        """
        ...

    def launch(self, request: "LaunchRequest") -> "LaunchOutcome":
        """Buy machines, all or nothing. The same token never buys twice. Shortages are outcomes, not errors."""
        ...

    def instances(self) -> "Sequence[Instance]":
        """Every instance of this cluster that the cloud still lists, terminated ones for a while included.

        Those that carry the tag `muster.dev/adopt` with this cluster's name are among them, whoever launched them.
        """
        ...

    def reservations(self) -> "Sequence[Reservation]":
        """Every capacity reservation the account may launch into, with how many machines are left in it now."""
        ...

    def resolve(self, births: "Sequence[LaunchConfiguration]") -> "Mapping[str, Resolved]":
        """Pool hash -> what the names of its template stand for now, for all that can be found out.

        Never older than what a launch got that had returned before.
        """
        ...

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Give machines back. Unknown and already terminated ids are fine."""
        ...

    def tag(self, instance_id: str, tags: dict[str, str]) -> None:
        """Add or overwrite tags of one instance."""
        ...


class Health(Protocol):
    """Tells which machines fail the cloud's own checks."""

    def poll(self) -> "Sequence[Notice]":
        """Machines that fail a check or have an event announced; the same ones again as long as it lasts."""
        ...


class Notices(Protocol):
    """Hands out the messages of the cloud's interruption queue."""

    def receive(self, wait_s: float) -> "Sequence[Notice]":
        """Up to ten messages, waiting at most `wait_s` seconds for the first; each stays hidden until acknowledged."""
        ...

    def acknowledge(self, notices: "Iterable[Notice]") -> None:
        """Delete messages that have been acted on."""
        ...
