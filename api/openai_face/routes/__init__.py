"""The calls of OpenAI's API that the service answers."""
