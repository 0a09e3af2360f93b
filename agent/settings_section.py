"""What all sections of the agent's settings are made of."""

from typing import Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class SettingsSection(BaseModel):
    """A mapping of `muster.yaml`: names in camel case, none that is not known."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,  # as part of the section that holds it, and only where settings are read at all
    )

    @classmethod
    def unsaid(cls) -> Self:
        """The section of settings that say nothing of it: a default, for which no validator is built."""
        return cls.model_construct()
