"""A rank without training: `rank.py FOLDER HOW [WHICH]` takes steps until something happens to rank WHICH.

HOW: done, kill, raise, exit, slow_stop, wait; `gloo:` before it: they agree before each step whether to stop.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trainer.failures import describe
from trainer.launcher.membership import bind_to_launcher, global_rank
from trainer.launcher.records import Records
from trainer.loop.guard import AgreedStop, StopRequest

folder, how, which = Path(sys.argv[1]), sys.argv[2], int([*sys.argv, "0"][3])
records, rank = Records(folder), global_rank()
bind_to_launcher(records)
should_stop: Callable[[], bool] = StopRequest()
should_stop.listen_aside()


def run() -> None:
    for step in range(1, 2000):
        if should_stop():
            if how == "slow_stop":
                time.sleep(3)
            print("stopped", flush=True)
            return
        print(f"step {step}", flush=True)
        if step == 5:
            if how == "done":
                return
            if rank == which and how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if rank == which and how == "raise":
                raise ValueError("something bad")
            if rank == which and how == "exit":
                os._exit(0)
        time.sleep(0.02)


together = how.startswith("gloo:")
how = how.removeprefix("gloo:")
records.begin(rank)
(folder / f"environment-{rank}.json").write_text(json.dumps(dict(os.environ)))
if together:
    from trainer.parallel.layout import start
    from trainer.parallel.topology import Topology

    topology = Topology(data=int(os.environ["PADDLE_TRAINERS_NUM"]))
    should_stop = AgreedStop(should_stop, start(topology, seed=0))
try:
    run()
except Exception as error:
    failure = describe(error)
    records.end(rank, failure.exit_code, failure.kind, failure.msg)
    sys.stdout.flush()
    os._exit(1)
records.end(rank, 0)
os._exit(0)
