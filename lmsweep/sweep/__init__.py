"""Grids become plans of jobs, and launchers run those that are missing. Knows nothing of margins."""
