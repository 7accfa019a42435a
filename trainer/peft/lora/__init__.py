"""LoRA: low-rank matrices beside frozen linear layers."""
