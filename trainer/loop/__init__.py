"""The training loops, one file per task, and the parts they share. Importing this package does not import
Paddle.
"""
