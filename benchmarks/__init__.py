"""How fast lmsweep is, side by side with other ways to do the same: `make bench`."""
