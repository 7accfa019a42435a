"""Losses of preference training: functions of log-probabilities, with no model and no data."""
