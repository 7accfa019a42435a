"""Model families, and what a family offers to the rest of the trainer.

One folder here is one family, and the end of `trainer.models.registry` is the only list of them. The loop,
checkpoints, adapters, parallel layouts and tools know a model only by what a `Family` and its model offer:

* **Configuration** (`config_class`): a frozen dataclass with the fields of `ModelConfig`, `from_dict` that
  reads a config.json and refuses what the family cannot do (`DataError`, all problems at once), and `to_dict`
  that writes one back, fields without a meaning here included.
* **Model** (`model_class`): a subclass of `CausalLM`, called with the configuration and a
  `Placement`, which says what of the model this process builds. It sets `lm_head`, the
  vocabulary projection, and implements the stages below. Tokens see each other only through the
  `attend` function that a layer is given; `alibi_slopes` says that positions enter there, as linear biases.
  Logits, losses, generation with a cache, packing and padding follow from these.
* **Pipeline stages** (`CausalLM.stages`): the decoder as an ordered list, from token ids through every layer
  to the final hidden states, each with the modules whose parameters it uses. The ordinary forward pass runs
  through this list too. `CausalLM.context` makes what all stages of a pass share, from the positions.
* **Layers with roles** (`roles`): every linear layer (`trainer.models.linear`) has a role by the last part of
  its name; `linear_layers` walks through them. Adapters and quantization choose their targets by role.
* **Split rules** (`splits`): for every tensor of the files, which axis is cut for tensor parallelism and what
  counts the pieces that must stay whole; numbers in names are `*`. The family builds its layers accordingly:
  `column` and `fused` for what goes into attention and the MLP, `row` for what comes out of them, with the
  rank that `Placement.tensor` names, and as many heads as `CausalLM.heads` has. Under sequence parallelism
  the first stage takes `own_tokens`, the last one gives `all_tokens`, and whatever has whole parameters
  between them, such as a norm, calls `sees_own_tokens`.
* **Weight map** (`CausalLM.parameter_names`): modules and parameters bear the names of the Hugging Face
  files, and every matrix that a file stores as `[out, in]` belongs to a linear layer, which stores
  `[in, out]`, or is a part of a `Fused` one. A tied head is no parameter of its own. Weights, optimizer state
  and fresh weights are named by this map, and it says which part of a tensor is here, so fusing and splitting
  never show on disk.

Sizes, initial weights and files need no code in the family: `new_model` draws every tensor whole from the
seed and its name, `load_model` and `save_model` follow the weight map. Vectors (norms, biases) begin as the
modules make them.
"""

from trainer.models.base import CausalLM, Stage
from trainer.models.configuration import ModelConfig
from trainer.models.directory import load_model, new_model, save_model
from trainer.models.parts import Role, Split
from trainer.models.registry import Family, LinearLayer, family, known_config, linear_layers, register
from trainer.models.weights import Weight, WeightMap

__all__ = [
    "CausalLM",
    "Family",
    "LinearLayer",
    "ModelConfig",
    "Role",
    "Split",
    "Stage",
    "Weight",
    "WeightMap",
    "family",
    "known_config",
    "linear_layers",
    "load_model",
    "new_model",
    "register",
    "save_model",
]
