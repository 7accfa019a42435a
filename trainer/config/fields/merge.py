"""Merging an adapter into its base model."""

from typing import Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import REQUIRED, no_effect, refused, setting
from trainer.config.values import Flag, PathText, Text


class MergeFields(FieldGroup):
    """Arguments of task merge: PaddleNLP's merge_lora_params, and `dtype`."""

    lora_path: PathText = setting(REQUIRED, "Folder of the LoRA adapter.")
    model_name_or_path: PathText | None = setting(
        None, "Folder or hub name of the base model; unset: as the adapter says."
    )
    output_dir: PathText = setting(REQUIRED, "Folder of the whole model, inside the job.")
    dtype: Literal["float32", "bfloat16", "float16"] | None = setting(
        None, "Dtype of the result; unset: that of the base model, tensor by tensor."
    )
    device: Text = setting("cpu", "Device to compute on.", no_effect("merging computes on the host"))
    safe_serialization: Flag = setting(
        True, "Write safetensors.", refused("pickled weights are never written")
    )
