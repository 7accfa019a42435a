"""Checkpoints: written so that a crash leaves a whole one or none, checked before they are used.

``<output_dir>/checkpoint-<step>/`` holds a model directory as the ecosystem knows it (config.json,
model.safetensors, tokenizer files), or a PEFT adapter when one is trained. Beside it lie
``optimizer.safetensors`` (several files with an index when it is large), ``trainer_state.json`` and
``manifest.json``. The files are the same whatever layout of processes wrote them, and any layout reads them.

Every process says which rectangles of which tensors it holds (`pieces`, `regions`); all compute the same plan
of files and writers (`plan`) and write their parts (`work`), at once or in a thread (`saver`).
"""
