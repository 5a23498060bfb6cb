"""The schema of every job, its clear errors, and how Hydra is asked."""
