"""`python -m lmsweep key=value ...` is one run."""

from lmsweep.cli import main

if __name__ == "__main__":
    main()
