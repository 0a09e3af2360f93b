"""Where the facts lie that are not part of the product."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("MUSTER_SHARED") or Path(__file__).resolve().parents[3] / "shared")
