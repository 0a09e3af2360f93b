"""GitHub, pretended."""
