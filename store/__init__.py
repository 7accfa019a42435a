"""What the API and the workers share: the job record and its state machine, artifacts, logs and settings.

Database functions take a `Session` and never commit: the caller's `with database.transaction()` does.
"""
