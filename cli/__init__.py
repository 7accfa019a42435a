"""The `regatta` command: the service on one machine, its client, and the trainer alone."""
