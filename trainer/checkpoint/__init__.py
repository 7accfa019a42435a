"""Checkpoints: written so that a crash leaves a whole one or none, checked before they are used.

``<output_dir>/checkpoint-<step>/`` holds a model directory as the ecosystem knows it (config.json,
model.safetensors, tokenizer files), or a PEFT adapter when one is trained. Beside it lie
``optimizer.safetensors``, ``trainer_state.json`` and ``manifest.json``. Importing this package does not
import Paddle.
"""
