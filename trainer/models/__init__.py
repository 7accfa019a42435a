"""Model families, and what a family offers to the rest of the trainer.

One folder here is one family, and `trainer.models.registry.FAMILIES` is the only list of them. The loop,
checkpoints, tools and everything else know a model only by the following:

* **Configuration** (`configuration.py`): a frozen dataclass with the fields of `ModelConfig`, `from_dict`
  that reads a config.json and refuses what the family cannot do (`DataError`, all problems at once), and
  `to_dict` that writes one back, fields without a meaning here included.
* **Modeling** (`modeling.py`): a subclass of `CausalLM` that is called with the configuration and comes out
  with zero parameters. It implements two things: `decode`, from packed token ids `[tokens]` and their
  positions to final hidden states `[tokens, hidden]`, in which tokens see each other only through the
  `attend` function it is given; and `head_weight`, the vocabulary projection. Logits, losses, generation with
  a cache and padding follow from these two.
* **Names**: modules and parameters bear the names of the Hugging Face files, and every matrix that a file
  stores as `[out, in]` belongs to a `paddle.nn.Linear`, which stores `[in, out]`. From this
  `CausalLM.parameter_names` makes the `WeightMap`, by which weights and optimizer state are named on disk. A
  tied head is no parameter of its own.

Sizes, initial weights and files need no code in the family: `new_model` draws every tensor whole from the
seed and its name, `load_model` and `save_model` follow the weight map.
"""

from trainer.models.base import CausalLM, ModelConfig
from trainer.models.directory import load_model, new_model, save_model
from trainer.models.registry import Family, family
from trainer.models.weights import Weight, WeightMap

__all__ = [
    "CausalLM",
    "Family",
    "ModelConfig",
    "Weight",
    "WeightMap",
    "family",
    "load_model",
    "new_model",
    "save_model",
]
