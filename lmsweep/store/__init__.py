"""One folder per job: lease, state, results. Knows jobs, nothing of margins."""
