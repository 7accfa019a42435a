"""The demonstration: a tiny model, a small data set about an invented harbour, the job that teaches it."""
