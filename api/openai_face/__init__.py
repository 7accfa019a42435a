"""The service as OpenAI's fine-tuning API: `/v1/files`, `/v1/fine_tuning/jobs`, `/v1/models`.

Files are data sets and fine-tuning jobs are jobs; only names and shapes differ. What OpenAI's API can say and
the service cannot do is refused, never left aside.
"""
