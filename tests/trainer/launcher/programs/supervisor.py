"""Supervises ranks: `supervisor.py FOLDER GANG HOW [WHICH]`, the gang as JSON; prints the verdict as JSON."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from trainer.launcher.gang import CPU, Gang
from trainer.launcher.supervise import supervise
from trainer.loop.guard import StopRequest

folder, gang, *words = sys.argv[1:]
should_stop = StopRequest()
should_stop.listen()
script = Path(__file__).with_name("rank.py")
gang = Gang(**json.loads(gang), devices=CPU)
verdict = supervise(gang, script, words, Path(folder), should_stop=should_stop)
print(json.dumps(asdict(verdict)))
