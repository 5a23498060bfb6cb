"""Measurements on stored checkpoints: jobs of their own, identified and cached like runs."""
