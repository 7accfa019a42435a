"""Smaller numbers for the linear layers of a model: how they are found, computed with and stored."""
