"""The model and its tokenizer."""

from typing import Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import REQUIRED, later, no_effect, refused, setting
from trainer.config.values import Flag, PathText, Real, Text, Whole

QLORA = no_effect("it belongs to weight_quantize_algo, which is not available in this version")
AISTUDIO = no_effect("it belongs to save_to_aistudio and from_aistudio, which this service does not have")
LONG_CONTEXT = no_effect("it belongs to use_long_sequence_strategies, which is not available in this version")
DROPOUT = no_effect(
    "Gemma and BLOOM have no dropout of this name; PaddleNLP trains them without it as well", (0.0,)
)


class ModelFields(FieldGroup):
    """The model: what every training task says about it."""

    model_name_or_path: PathText = setting(
        REQUIRED, "Folder of the model (config.json, safetensors weights, tokenizer files)."
    )
    tokenizer_name_or_path: PathText | None = setting(None, "Folder of the tokenizer; unset: the model's.")
    fuse_attention_qkv: Flag | None = setting(
        None,
        "Keep Gemma's query, key and value matrices as one in memory (BLOOM's always are); unset: as the"
        " model says. Files do not change.",
    )
    fuse_attention_ffn: Flag | None = setting(
        None,
        "Keep Gemma's gate and up matrices as one in memory; unset: as the model says. Files do not change.",
    )
    weight_quantize_algo: Literal["weight_only_int8", "weight_only_int4", "nf4", "fp4"] | None = setting(
        None, "Freeze the base model in this quantized form (QLoRA).", later("quantized base models")
    )
    flash_mask: Flag = setting(
        False,
        "Pass packed sequences to the attention kernel as start rows, not as a dense mask.",
        no_effect("packed sequences never need a dense mask"),
    )


class FinetuneModelFields(FieldGroup):
    """The model: what only finetune and quantize say about it."""

    use_fast_layer_norm: Flag = setting(
        False, "Use the fast layer norm kernel.", no_effect("kernels are chosen for the device")
    )
    hidden_dropout_prob: Real = setting(0.1, "Dropout of hidden states.", DROPOUT, ge=0, le=1)
    attention_probs_dropout_prob: Real = setting(
        0.1, "Dropout of attention probabilities.", DROPOUT, ge=0, le=1
    )
    continue_training: Flag = setting(
        True,
        "Start from the weights of the model folder; false: from random weights.",
        later("training from random weights"),
    )
    weight_blocksize: Whole = setting(64, "Block size of a quantized base model.", QLORA, ge=1)
    weight_double_quant: Flag = setting(False, "Quantize the scales of a quantized base model too.", QLORA)
    weight_double_quant_block_size: Whole = setting(256, "Block size of quantized scales.", QLORA, ge=1)
    neftune: Flag = setting(False, "Add noise to the embeddings in training (NEFTune, arXiv 2310.05914).")
    neftune_noise_alpha: Real = setting(
        5.0,
        "Strength alpha of the NEFTune noise: uniform up to alpha / sqrt(length x hidden size).",
        ge=0,
    )
    use_long_sequence_strategies: Flag = setting(
        False, "Extend the context with the strategy below.", later("long-context strategies")
    )
    rope_scaling_factor: Real = setting(1.0, "Factor by which the context is extended.", LONG_CONTEXT, gt=0)
    strategy_type: Literal["embedding_strategies"] | None = setting(
        None, "Kind of long-context strategy.", LONG_CONTEXT
    )
    strategy_name: (
        Literal[
            "RotaryEmbedding",
            "LinearScalingRotaryEmbedding",
            "NTKScalingRotaryEmbedding",
            "DynamicNTKScalingRotaryEmbedding",
        ]
        | None
    ) = setting(None, "Name of the long-context strategy.", LONG_CONTEXT)
    use_ssa: Flag = setting(
        False, "Shifted sparse attention.", refused("Gemma and BLOOM have no shifted sparse attention")
    )
    ssa_group_size_ratio: Real = setting(
        0.25, "Group size of shifted sparse attention.", no_effect("it belongs to use_ssa"), gt=0, le=1
    )
    from_aistudio: Flag = setting(
        False, "Download the model from AI Studio.", refused("models are read from the model roots only")
    )
    save_to_aistudio: Flag = setting(
        False, "Upload the result to AI Studio.", refused("the result is downloaded from this service")
    )
    aistudio_repo_id: Text | None = setting(None, "AI Studio repository.", AISTUDIO)
    aistudio_repo_private: Flag = setting(True, "Make the AI Studio repository private.", AISTUDIO)
    aistudio_repo_license: Text = setting("Apache License 2.0", "License of the repository.", AISTUDIO)
    aistudio_token: Text | None = setting(None, "AI Studio access token.", AISTUDIO, secret=True)
