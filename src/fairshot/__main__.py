"""`python -m fairshot` is the command `fairshot`."""

from fairshot.cli import main

main()
