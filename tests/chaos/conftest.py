"""The same service, model and data as in the end-to-end tests."""

from tests.end_to_end.conftest import data, model, root, service

__all__ = ["data", "model", "root", "service"]
