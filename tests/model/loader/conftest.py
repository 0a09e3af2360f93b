"""Small fleets loaded from text."""

from collections.abc import Callable

import pytest

from model.loader import inspect
from model.problem import Problem


@pytest.fixture
def problems() -> Callable[..., list[Problem]]:
    """Loads documents as one file and returns the problems."""

    def run(*documents: str) -> list[Problem]:
        return list(inspect({"f.yaml": "---\n".join(documents).encode()}).problems)

    return run
