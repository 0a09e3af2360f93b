"""The clouds that machines can be bought from, by name. Another cloud is another entry here and a module beside it.

The name is also that of the section of the settings that is its own (`agent.config`).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent.clouds.provider import CloudProvider

DEFAULT: Final = "aws"


def _aws() -> "CloudProvider":
    from agent.clouds.aws import AwsProvider

    return AwsProvider()


_PROVIDERS: Final[Mapping[str, "Callable[[], CloudProvider]"]] = {"aws": _aws}
NAMES: Final = tuple(_PROVIDERS)


def cloud_provider(name: str = DEFAULT) -> "CloudProvider":
    """The cloud of that name; KeyError for one that is not in `NAMES`."""
    return _PROVIDERS[name]()
