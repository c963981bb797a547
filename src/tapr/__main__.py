"""`python -m tapr`, and `torchrun -m tapr` for one stream over many processes."""

from tapr.cli import main

main()
