"""`python -m tapr.cli`."""

from tapr.cli import main

main()
