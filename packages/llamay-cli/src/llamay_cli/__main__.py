"""`python -m llamay_cli` is `llamay`."""

from . import main

main()
