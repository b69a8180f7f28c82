"""`python -m mainspring`: the command line without an installed script."""

from mainspring.cli import main

if __name__ == "__main__":
    main(prog_name="mainspring")
