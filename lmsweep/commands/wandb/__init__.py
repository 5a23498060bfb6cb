"""The words of the command line that speak with W&B."""
