"""Training in several processes: Paddle's launcher starts the ranks, a supervisor here watches over them.

`supervise` starts ``python -m paddle.distributed.launch``, which starts a process per rank; the supervisor
imports no Paddle. Each rank tells by small files that it has begun, how it ended and why (`records`); from
these, and from the order in which processes died, the supervisor finds the one that failed first (`verdict`).
"""
