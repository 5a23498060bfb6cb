"""The report: every drawn figure, its claims and where its numbers come from, on one static page."""
