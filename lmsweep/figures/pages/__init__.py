"""Figures and sweeps as pages: Markdown in results/, a report for a browser, a live page."""
