"""Kernels: the one place that knows how a formula is computed fast.

Each module holds one operation, exact and differentiable, on packed tokens `[tokens, width]`. The
formulations are deterministic: the same inputs give the same bits, run after run, with the same number of
threads. On CPU they avoid what Paddle's CPU kernels do slowly (strided copies, broadcasts, row reductions) in
favour of matrix products.

`trainer.ops.host` prepares the process and must be used before Paddle is imported, so this package imports
nothing.
"""
