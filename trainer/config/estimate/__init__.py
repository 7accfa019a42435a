"""What a job will take, before a device is taken: parameters, memory, tokens, steps, checkpoints.

Everything follows from the config, the model's config.json and, where they were counted, the tokens of the
data. Nothing is loaded; importing this never imports Paddle.
"""

from trainer.config.estimate.estimate import Estimate, estimate_job
from trainer.config.estimate.tokens import Counted, SplitTokens

__all__ = ["Counted", "Estimate", "SplitTokens", "estimate_job"]
