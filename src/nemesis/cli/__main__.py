"""`python -m nemesis.cli` is `nemesis`."""

from nemesis.cli import main

main()
