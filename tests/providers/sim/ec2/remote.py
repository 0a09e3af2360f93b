"""The machines of a `FakeAws` in another process, for the simulated nodes of this one."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from providers.sim.machines import SimulatedMachine

_TIMEOUT_S = 10.0


class ControlError(Exception):
    """The fake refused a control call, or cannot be reached."""


class RemoteFake:
    """Reads machines and causes faults through the control routes; `control_url` ends in `/muster-sim`.

    Implements `Machines`; every call raises ControlError where the fake does not answer.
    """

    def __init__(self, control_url: str) -> None:
        self._url = control_url.rstrip("/")
        self._boot_delays_s: dict[str, float | None] = {}

    def list(self) -> Sequence[SimulatedMachine]:
        """Every machine there is."""
        rows = self._call("machines", None)
        self._boot_delays_s = {row["instance_id"]: row.pop("boot_delay_s") for row in rows}
        return [SimulatedMachine(**row) for row in rows]

    def boot_delay_s(self, machine: SimulatedMachine) -> float | None:
        """Seconds from its launch until a machine's kubelet registers, as of the last `list`; None for never."""
        return self._boot_delays_s.get(machine.instance_id)

    def cause(self, route: str, **body: object) -> Mapping[str, Any]:
        """POST to a control route: `cause("shortage", zone="us-east-1a")`."""
        answer: Mapping[str, Any] = self._call(route, body)
        return answer

    def _call(self, route: str, body: Mapping[str, object] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{route}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise ControlError(json.loads(error.read())["error"]) from None
        except (OSError, ValueError) as error:
            raise ControlError(f"{self._url}/{route}: {error}") from error
