"""Who may look at the page, and at whose work: asked of the API server, or told by a proxy that is trusted."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple, Protocol

from agent.config import WebSettings
from agent.web.seen import Scope
from agent.web.time_share import TimeShare
from providers.kube.errors import KubeError
from providers.kube.objects.paths import WORKLOADS
from providers.kube.reviews import KubeUser, may, user_of
from providers.kube.transport import KubeTransport

KEPT_S: Final = 60.0
"""How long an answer of the API server holds: whoever loses a right loses the page within this time."""
KEPT_MOST: Final = 1_024
NAMESPACES_MOST: Final = 256
"""Namespaces of teams that one viewer is asked about."""
_REVIEWS_S, _REVIEWS_AT_ONCE = 5.0, 50.0
"""Viewers looked up a second in the long run, and at once: a stranger with made-up tokens does not busy the server."""


class DenialReason(StrEnum):
    """Why somebody may not look."""

    UNKNOWN = "Unknown"
    """No token, or nobody's."""
    FORBIDDEN = "Forbidden"
    """Known, and allowed to see no team's work."""
    UNAVAILABLE = "Unavailable"
    """The API server does not answer, or too many ask at once."""
    ADDRESS = "Address"
    """The address that was asked for, or asked from, is none of those that count."""


class NotAllowed(Exception):
    """Somebody may not look; the message says what to do."""

    def __init__(self, reason: DenialReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Viewer(NamedTuple):
    """Somebody who may look, and at what."""

    name: str
    scope: Scope


@dataclass(frozen=True, slots=True)
class PageCaller:
    """What a request says of who asks."""

    peer: str
    """Address that it comes from."""
    host: str
    headers: Mapping[str, str]
    token: str
    """Bearer token, from the header or the cookie; empty = none."""


class Gate(Protocol):
    """Tells who may look. It may ask the API server, and so is not for the thread of a server."""

    logs_in: bool
    """Whether a token helps."""

    def admit(self, caller: PageCaller, namespaces: Collection[str]) -> Viewer:
        """Returns who it is and which of the namespaces they see. Errors: `NotAllowed`."""
        ...


class OpenGate:
    """Lets everybody look at everything who asks for this machine by its address: for the sandbox.

    A name is refused, because any web site can give this machine a name and have a browser ask for it.
    """

    logs_in = False

    def admit(self, caller: PageCaller, namespaces: Collection[str]) -> Viewer:
        """Returns a viewer of everything. Errors: `NotAllowed`."""
        name = caller.host.rpartition(":")[0] if caller.host.rpartition(":")[2].isdigit() else caller.host
        if name != "localhost" and not _is_address(name.strip("[]")):
            raise NotAllowed(DenialReason.ADDRESS, "this page is read at localhost or at an address, not at a name")
        return Viewer("", Scope())


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class KubeGate:
    """Lets those look whom the API server knows by their token: at the work where they may list Workloads."""

    logs_in = True

    def __init__(self, api: KubeTransport, monotonic: Callable[[], float]) -> None:
        self._rights = _Rights(api, monotonic)

    def admit(self, caller: PageCaller, namespaces: Collection[str]) -> Viewer:
        """Returns whose token it is and what they see. Errors: `NotAllowed`."""
        if not caller.token:
            raise NotAllowed(DenialReason.UNKNOWN, "the page is for those whom the cluster knows: give a token")
        return self._rights.viewer(caller.token, lambda api: user_of(api, caller.token), namespaces)


class ProxyGate:
    """Believes what a proxy says of who asks, if it stands at one of the addresses; rights are the API server's."""

    logs_in = False

    def __init__(
        self,
        api: KubeTransport,
        monotonic: Callable[[], float],
        addresses: Collection[str],
        headers: tuple[str, str],
    ) -> None:
        """`addresses` are networks (CIDR); `headers` name the user, and the groups with commas between them."""
        self._rights = _Rights(api, monotonic)
        self._networks = [ip_network(each) for each in addresses]
        self._user, self._groups = headers

    def admit(self, caller: PageCaller, namespaces: Collection[str]) -> Viewer:
        """Returns who it is by the proxy's word. Errors: `NotAllowed`."""
        if not any(ip_address(caller.peer) in network for network in self._networks):
            raise NotAllowed(DenialReason.ADDRESS, "the page is reached through its proxy only")
        name = caller.headers.get(self._user, "").strip()
        if not name:
            raise NotAllowed(DenialReason.UNKNOWN, f"the proxy does not say who asks (header {self._user})")
        groups = tuple(filter(None, (it.strip() for it in caller.headers.get(self._groups, "").split(","))))
        user = KubeUser(name, (*groups, "system:authenticated"))
        return self._rights.viewer(f"{name}\n{','.join(groups)}", lambda _api: user, namespaces)


class _KeptRights(NamedTuple):
    until_s: float
    namespaces: Collection[str]
    found: Viewer | NotAllowed


class _Rights:
    """What the API server has said of viewers lately, by a hash of what they were known by."""

    def __init__(self, api: KubeTransport, monotonic: Callable[[], float]) -> None:
        self._api = api
        self._monotonic = monotonic
        self._kept: OrderedDict[str, _KeptRights] = OrderedDict()
        self._pace = TimeShare(monotonic, _REVIEWS_S, _REVIEWS_AT_ONCE)

    def viewer(
        self, known_by: str, find: Callable[[KubeTransport], KubeUser | None], namespaces: Collection[str]
    ) -> Viewer:
        """Returns the viewer; an answer holds for a while, and for these namespaces. Errors: `NotAllowed`."""
        key = hashlib.sha256(known_by.encode()).hexdigest()
        held = self._kept.get(key)
        if held is None or held.until_s <= self._monotonic() or held.namespaces != namespaces:
            held = self._asked(find, namespaces)
            self._kept[key] = held
            while len(self._kept) > KEPT_MOST:
                self._kept.popitem(last=False)
        if isinstance(held.found, NotAllowed):
            raise held.found.with_traceback(None)  # it is raised again and again
        return held.found

    def _asked(self, find: Callable[[KubeTransport], KubeUser | None], namespaces: Collection[str]) -> _KeptRights:
        if self._pace.wait_s() > 0:
            raise NotAllowed(DenialReason.UNAVAILABLE, "too many ask at once; come again in a moment")
        self._pace.spend(1.0)
        found: Viewer | NotAllowed
        try:
            found = self._looked_up(find(self._api), namespaces)
        except NotAllowed as denied:
            found = denied
        except KubeError as error:
            words = f"the API server was asked who you are, and says: {error}"
            raise NotAllowed(DenialReason.UNAVAILABLE, words) from error
        return _KeptRights(self._monotonic() + KEPT_S, namespaces, found)

    def _looked_up(self, user: KubeUser | None, namespaces: Collection[str]) -> Viewer:
        if user is None:
            raise NotAllowed(DenialReason.UNKNOWN, "the cluster does not know this token, or it has expired")
        if may(self._api, user, "list", WORKLOADS):
            return Viewer(user.name, Scope())
        own = [each for each in sorted(namespaces)[:NAMESPACES_MOST] if may(self._api, user, "list", WORKLOADS, each)]
        if not own:
            words = f"{user.name} may list the Workloads of no team; ask for the role view in a team's namespace"
            raise NotAllowed(DenialReason.FORBIDDEN, words)
        return Viewer(user.name, Scope(frozenset(own)))


def gate_of(said: WebSettings, api: KubeTransport, monotonic: Callable[[], float]) -> Gate | None:
    """Returns the gate that the settings ask for; None = there is no page."""
    if said.access == "Off":
        return None
    if said.access == "Anonymous":
        return OpenGate()
    if said.proxy is not None:
        names = said.proxy.user_header, said.proxy.groups_header
        return ProxyGate(api, monotonic, said.proxy.addresses, names)
    return KubeGate(api, monotonic)
