"""Regatta beside other trainers, which run in an environment of their own (`make bench-peers`)."""
