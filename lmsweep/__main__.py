"""`python -m lmsweep` is the command `lmsweep`."""

from lmsweep.commands import main

if __name__ == "__main__":
    main()
