"""From the store to a figure: collect, select, aggregate, draw, check the paper's claims, report."""
