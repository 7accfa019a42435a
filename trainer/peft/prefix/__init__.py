"""Prefix tuning: keys and values that are learned directly, in front of every document."""
