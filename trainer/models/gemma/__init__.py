"""Gemma, first generation (Gemma Team, arXiv 2403.08295)."""
