"""Any training task of Regatta, as its argument file says, a step at each turn."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.peers.turns import Turns
from trainer.config import read_config
from trainer.events import EventWriter
from trainer.loop.guard import StopRequest
from trainer.ops.host import configure_cpu
from trainer.run import import_paddle, run_task


def main() -> None:
    work = json.loads(sys.argv[1])
    turns = Turns()
    configure_cpu()
    import_paddle(StopRequest())
    from trainer.loop import train

    step = train.train_step

    def counted(engine: Any, update: Any, objective: Any, batches: Any, **named: Any) -> Any:
        turns.count(sum(batch.label_tokens for batch in batches))
        return step(engine, update, objective, batches, **named)

    def should_stop() -> bool:
        """The loop asks this before every step."""
        turns.begin()
        return False

    train.train_step = counted
    config = read_config(work["task"], work["config"]).config
    run_task(work["task"], config, EventWriter(), should_stop)


main()
