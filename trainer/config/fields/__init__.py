"""The arguments, one subject a file. `trainer.config.schema` composes a config class per task of them."""
