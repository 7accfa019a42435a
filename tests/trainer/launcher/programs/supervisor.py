"""Supervises ranks: `supervisor.py FOLDER NPROC HOW [WHICH]`; prints the verdict as JSON."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from trainer.launcher.gang import CPU, Gang
from trainer.launcher.supervise import supervise
from trainer.loop.guard import StopRequest

folder, nproc, *words = sys.argv[1:]
should_stop = StopRequest()
should_stop.listen()
script = Path(__file__).with_name("rank.py")
verdict = supervise(Gang(int(nproc), devices=CPU), script, words, Path(folder), should_stop=should_stop)
print(json.dumps(asdict(verdict)))
