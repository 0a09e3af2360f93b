"""Where the facts live that are not part of the product: the folder `shared` beside the checkout, or where
`MUSTER_SHARED` says, if it is there.
"""

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("MUSTER_SHARED") or Path(__file__).resolve().parents[3] / "shared")


def shared_path(relative: str) -> Path:
    """The file or folder `relative` below `shared`; skips the calling test, saying why, where it is absent."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"the reference folder is not beside this checkout: shared/{relative}", allow_module_level=True)
    return path
