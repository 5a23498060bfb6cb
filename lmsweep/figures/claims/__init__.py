"""The paper's claims: their kinds, the numbers they are held against, and the verdicts."""
