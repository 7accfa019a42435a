"""Old names that still work, dropped ones, other programs' words, and the known name nearest to a typo."""

import difflib
from collections.abc import Collection

from trainer.config.problems import Problem
from trainer.config.schema import CONFIGS
from trainer.config.values import printable

#: Names of other PaddleNLP releases that mean exactly what the name on the right means.
ALIASES = {
    "sharding_degree": "sharding_parallel_degree",
    "task_name_or_path": "dataset_name_or_path",
    "output_path": "output_dir",
    "intokens": "zero_padding",
    "intokens_max_length": "max_length",
    "qlora_weight_blocksize": "weight_blocksize",
    "qlora_weight_double_quant": "weight_double_quant",
    "qlora_weight_double_quant_block_size": "weight_double_quant_block_size",
}

#: Names of other PaddleNLP releases that have no equal, with what to do instead.
DROPPED = {
    "tgt_length": "Set max_length to src_length plus tgt_length.",
    "use_fp8": 'Set quant_type to "a8w8_fp8" and fp8_type to the formats.',
    "do_ceval": "Evaluation on C-Eval was dropped; leave it out.",
    "loraga": "LoRA-GA is not available in this version; leave it out.",
    "lorapro": "LoRA-Pro is not available in this version; leave it out.",
}

#: What users of other programs write, by the argument they mean. The first that the task has is suggested.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "learning_rate": ("lr", "max_lr", "peak_lr", "base_lr"),
    "lr_scheduler_type": ("lr_scheduler", "scheduler", "lr_schedule", "lr_decay_style"),
    "num_train_epochs": ("epochs", "epoch", "num_epochs", "n_epochs", "max_epochs", "train_epochs"),
    "max_steps": ("steps", "total_steps", "train_steps", "num_train_steps", "max_train_steps", "train_iters"),
    "per_device_train_batch_size": (
        "batch_size",
        "train_batch_size",
        "micro_batch_size",
        "per_device_batch_size",
        "per_gpu_train_batch_size",
    ),
    "per_device_eval_batch_size": ("eval_batch_size", "per_gpu_eval_batch_size"),
    "gradient_accumulation_steps": ("grad_accum", "accumulation_steps", "gradient_accumulation"),
    "max_grad_norm": ("clip_grad", "grad_clip", "gradient_clip_val", "gradient_clipping"),
    "warmup_steps": ("warmup", "num_warmup_steps", "lr_warmup_steps"),
    "optim": ("optimizer", "optimiser"),
    "evaluation_strategy": ("eval_strategy",),
    "save_total_limit": ("keep_checkpoints", "max_checkpoints"),
    "model_name_or_path": ("model", "model_name", "model_path", "model_id", "base_model", "pretrained_model"),
    "tokenizer_name_or_path": ("tokenizer", "tokenizer_path", "tokenizer_name"),
    "dataset_name_or_path": (
        "dataset",
        "data",
        "data_path",
        "dataset_path",
        "dataset_dir",
        "data_dir",
        "train_file",
        "train_dataset_path",
    ),
    "train_dataset_path": ("dataset_name_or_path", "dataset", "data_path", "dataset_path", "train_file"),
    "dev_dataset_path": ("eval_dataset_path", "eval_file", "validation_file"),
    "max_length": ("max_seq_len", "seq_length", "sequence_len", "cutoff_len", "model_max_length"),
    "max_seq_len": ("max_length", "max_seq_length", "seq_length", "sequence_len", "cutoff_len"),
    "src_length": ("max_prompt_len", "max_source_length", "max_prompt_length"),
    "max_prompt_len": ("src_length", "max_prompt_length", "max_source_length"),
    "output_dir": ("output", "out_dir", "save_dir"),
    "lora": ("use_lora", "peft", "use_peft", "adapter"),
    "lora_rank": ("lora_r", "r", "lora_dim"),
    "recompute": ("gradient_checkpointing", "activation_checkpointing"),
    "use_flash_attention": ("flash_attention", "flash_attn", "attn_implementation"),
    "bf16": ("dtype", "precision", "torch_dtype", "mixed_precision"),
    "zero_padding": ("packing", "pack", "sample_packing"),
    "lazy": ("streaming", "stream"),
    "chat_template": ("template", "prompt_template"),
    "tensor_parallel_degree": ("tp", "tp_size", "tp_degree", "tensor_parallel_size"),
    "pipeline_parallel_degree": ("pp", "pp_size", "pp_degree", "pipeline_parallel_size"),
    "sharding": ("deepspeed", "fsdp", "zero_stage"),
    "seed": ("random_seed", "random_state"),
}


def names_of(task: str) -> Collection[str]:
    """The argument names of a task."""
    return CONFIGS[task].model_fields


def tasks_with(name: str) -> list[str]:
    """The tasks that have an argument of this name."""
    return [task for task, config in CONFIGS.items() if name in config.model_fields]


def unknown_key_problem(task: str, key: str) -> Problem:
    """Why `key` is refused in a config of `task`, and what was probably meant."""
    shown = printable(key)[:80]
    if key in DROPPED:
        return Problem((shown,), f"{shown} is an argument of another release, not of this one", DROPPED[key])
    meant = suggestions(task, key)
    if others := tasks_with(key):
        tasks = f"task{'s'[: len(others) - 1]} {', '.join(others)}"
        msg = f"{shown} is an argument of {tasks}, not of task {task}"
        here = f"In task {task} use {meant[0]}." if meant and key in SYNONYMS.get(meant[0], ()) else ""
        return Problem((shown,), msg, here or f"Leave it out, or set task to {others[0]}.")
    hint = (
        f"Did you mean {' or '.join(meant)}?"
        if meant
        else f"docs/config.md and GET /schemas/{task} list all names."
    )
    return Problem((shown,), f"{shown} is not an argument of task {task}", hint)


def suggestions(task: str, key: str) -> list[str]:
    """At most two known names that `key` may stand for, likeliest first."""
    word = key[:80].lower().replace("-", "_").strip("_ ")
    known = names_of(task)
    if word in known:
        return [word]
    meant = [name for name, words in SYNONYMS.items() if word in words and name in known]
    return meant[:1] or difflib.get_close_matches(word, known, n=2, cutoff=0.75)
