"""What the server tells of itself and of the service: Prometheus metrics, request ids, the access log."""
