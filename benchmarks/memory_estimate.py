"""How far the memory that `trainer.config.estimate` predicts is from what training takes.

Trains random Gemma and BLOOM models of a few sizes on a CPU, each in a fresh process, and compares the peaks
that the trainer reports (`peak_memory_bytes`, `peak_tensor_bytes`) with the estimate of the same config.

    python benchmarks/memory_estimate.py [--all] [--only NAME]
"""

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import table, write_section
from tests.trainer.config.estimate.runs import LIMIT, Case, compare

ABOUT = "Peaks of the process and of its tensors alone, each case trained in a fresh process on a CPU."
LORA = {"lora": True}
AGAIN = {"recompute": True}
CASES = (
    Case("sft", "tiny gemma", 2, 256),
    Case("lora", "tiny gemma", 2, 256, arguments=LORA),
    Case("bloom", "tiny bloom", 2, 256),
    Case("recompute", "tiny gemma", 2, 256, arguments=AGAIN),
    Case("dpo", "tiny gemma", 2, 256, "dpo"),
    Case("small sft", "small gemma", 2, 256),
    Case("small lora", "small gemma", 2, 256, arguments=LORA),
)
MORE_CASES = (
    Case("one short row", "tiny gemma", 1, 256),
    Case("long rows", "tiny gemma", 4, 512),
    Case("attention again", "tiny gemma", 2, 256, arguments=AGAIN | {"recompute_granularity": "full_attn"}),
    Case(
        "core attention again", "tiny gemma", 2, 256, arguments=AGAIN | {"recompute_granularity": "core_attn"}
    ),
    Case("bloom lora", "tiny bloom", 2, 512, arguments=LORA),
    Case("prefix", "tiny gemma", 2, 256, arguments={"prefix_tuning": True}),
    Case("accumulation", "tiny gemma", 2, 256, arguments={"gradient_accumulation_steps": 2}),
    Case("kto", "tiny gemma", 2, 256, "kto"),
    Case("dpo lora", "tiny gemma", 2, 256, "dpo", LORA),
    Case("small, many tokens", "small gemma", 4, 512),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="more cases, which take minutes")
    parser.add_argument("--only", metavar="NAME", help="one case")
    options = parser.parse_args()
    known = (*CASES, *MORE_CASES)
    cases = tuple(case for case in known if case.name == options.only) if options.only else CASES
    worst, rows = 0.0, []
    with tempfile.TemporaryDirectory() as temporary:
        for case, found in compare(known if options.all else cases, Path(temporary)):
            worst = max(worst, abs(found.error))
            whole = found.predicted, found.measured, found.error
            tensors = found.predicted_tensors, found.measured_tensors, found.tensor_error
            shown = ((f"{a / 1e6:.0f} MB", f"{b / 1e6:.0f} MB", f"{c:.1%}") for a, b, c in (whole, tensors))
            rows.append([case.name, *itertools.chain(*shown)])
    heads = ["", "predicted", "measured", "error", "tensors, predicted", "measured", "error"]
    text = f"{ABOUT} Largest error {worst:.1%}, limit {LIMIT:.0%}.\n\n{table(heads, rows)}"
    if options.only:
        print(text)
    else:
        write_section("Memory of training, predicted and measured", text)
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
