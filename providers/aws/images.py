"""Which machine image: an id as it is, or what an SSM parameter names at present."""

from typing import Any

from fleet.snapshot import LaunchRequest
from providers.aws.buckets import Group
from providers.aws.retry import Caller
from providers.clock import Clock
from providers.ports import CloudRejected

_FRESH_S = 3600.0


class Images:
    """Resolves image ids; a parameter's value is believed for an hour, or until EC2 does not know the image."""

    def __init__(self, caller: Caller, ssm: Any, clock: Clock) -> None:
        self._caller = caller
        self._ssm = ssm
        self._clock = clock
        self._values: dict[str, tuple[float, str]] = {}

    def resolve(self, request: LaunchRequest) -> str:
        """The image id for `request`; raises `CloudRejected` where it names none."""
        if request.image_id:
            return request.image_id
        if not request.image_ssm_parameter:
            raise CloudRejected("the launch names neither an image id nor an SSM parameter")
        return self._parameter(request.image_ssm_parameter)

    def forget(self, request: LaunchRequest) -> None:
        """The image turned out not to exist: look the parameter up again next time."""
        self._values.pop(request.image_ssm_parameter, None)

    def _parameter(self, name: str) -> str:
        now_s = self._clock.monotonic()
        read_s, value = self._values.get(name, (0.0, ""))
        if not value or now_s - read_s > _FRESH_S:
            answer = self._caller.idempotent(Group.SSM, lambda: self._ssm.get_parameter(Name=name))
            value = str(answer["Parameter"]["Value"])
            if not value.startswith("ami-"):
                raise CloudRejected(f"the SSM parameter {name} holds {value[:40]!r}, which is not an image id")
            self._values[name] = (now_s, value)
        return value
