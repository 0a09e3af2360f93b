"""The decisions: pure, deterministic functions of (desired, observed, prices, now)."""
