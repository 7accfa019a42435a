"""BLOOM (BigScience, arXiv 2211.05100) and what was tuned from it: BLOOMZ, BELLE."""
