"""Executable facts about what the established systems decide, run through our engine: `python -m tests.conformance`."""
