"""The command line. Every command imports what it needs when it runs, so that `--help` stays quick."""

from agent.cli import garbage

__all__ = ["main"]


def main() -> None:
    """The console script, by each of its names."""
    garbage.let_lie()
    from agent.cli.app import run_program

    run_program()
