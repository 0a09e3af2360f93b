"""`python -m agent` is `muster`."""

from agent.cli import main

main()
