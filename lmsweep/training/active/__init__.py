"""Active learning: what a network is unsure of is labelled next."""
