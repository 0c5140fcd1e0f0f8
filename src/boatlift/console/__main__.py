"""`python -m boatlift.console`: the command line."""

from boatlift.console.app import main

main()
