"""`python -m checkrein`: the command line, where its script is not on the path."""

from checkrein.cli import main

main(prog_name="checkrein")
