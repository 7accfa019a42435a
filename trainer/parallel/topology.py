"""The degrees of parallelism. They live with the arguments, where a job is checked before anything runs."""

from trainer.config.topology import Topology

__all__ = ["Topology"]
