"""Which runs exist, which are missing, and where they are kept."""
