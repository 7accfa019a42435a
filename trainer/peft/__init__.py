"""Parameter-efficient tuning: adapters that are trained beside a frozen base model.

An adapter knows a model by what every family offers: its linear layers and their roles, the sizes of its
configuration, the keys and values that may stand before its documents. On disk it is a Hugging Face PEFT
adapter: adapter_config.json and adapter_model.safetensors. Importing this package does not import Paddle.
"""
