"""The command line. Every command imports what it needs when it runs, so that `--help` stays quick."""

from agent.cli.app import complete_for_kubectl, main

__all__ = ["complete_for_kubectl", "main"]
