"""The command line. Every command imports what it needs when it runs, so that `--help` stays quick."""

from agent.cli.app import main

__all__ = ["main"]
