"""Model families."""

from trainer.models.base import CausalLM
from trainer.models.directory import load_model, new_model, save_model
from trainer.models.registry import Family, family
from trainer.models.weights import Weight, WeightMap

__all__ = ["CausalLM", "Family", "Weight", "WeightMap", "family", "load_model", "new_model", "save_model"]
