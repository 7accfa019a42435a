"""How much memory a step of task dpo takes, against the same step in its plain form.

Plain: the chosen and the rejected responses, each behind a prompt of its own, go through the model in two
passes that keep their graphs until the backward pass, with the softmax of all logits in float32. Here: one
sequence a pair with its prompt once, and log-probabilities in chunks. Both train the same Gemma (fresh
weights, whole, loss `sigmoid` without a reference) with `train_step`, on the same pairs, with the same
attention. All responses have one length, so the plain form wastes nothing on padding.

Each form runs in a fresh process. Measured there: the peak resident memory (VmHWM) of the first step, with
its gradients and the optimizer's state, minus the resident memory before, when the model is there.

    python benchmarks/preference_memory.py [--pairs 2] [--prompt 512] [--response 256]
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from trainer.ops.host import import_paddle  # noqa: E402

import_paddle()

import numpy as np  # noqa: E402
import paddle  # noqa: E402
import paddle.nn.functional as functional  # noqa: E402

from benchmarks.results import table, write_section  # noqa: E402
from trainer.config.schema import DpoConfig  # noqa: E402
from trainer.data.preference import PreferenceExample, Response  # noqa: E402
from trainer.data.preference_batches import PreferenceCollator  # noqa: E402
from trainer.loop.engine import ShareOfLoss, SingleEngine  # noqa: E402
from trainer.loop.preference import Pairs  # noqa: E402
from trainer.loop.step import train_step  # noqa: E402
from trainer.models.base import CausalLM  # noqa: E402
from trainer.models.directory import new_model  # noqa: E402
from trainer.models.gemma.configuration import GemmaConfig  # noqa: E402
from trainer.models.passes import Passes  # noqa: E402
from trainer.parallel.update_choice import make_updater  # noqa: E402

#: With an eighth of the published vocabulary, so that a run takes less than a minute.
MODEL = GemmaConfig(
    vocab_size=32_000,
    hidden_size=256,
    intermediate_size=1_024,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=1,
    head_dim=64,
)
FIRST_ORDINARY_ID = 3
LEARNING_RATE, MAX_GRAD_NORM = 1e-5, 1.0
LIMIT = 0.6
LARGEST_DIFFERENCE = 1e-4
FORMS = {"plain": "two passes, all logits", "shared": "shared prompt, chunks"}


def pairs(count: int, prompt: int, response: int) -> list[PreferenceExample]:
    """Pairs of random ids; a prompt has `prompt` tokens, each response `response`."""
    generator = np.random.default_rng(0)

    def draw(length: int) -> np.ndarray:
        return generator.integers(FIRST_ORDINARY_ID, MODEL.vocab_size, length).astype(np.int32)

    found = []
    for _ in range(count):
        ids = draw(prompt)
        responses = tuple(Response.of(int(ids[-1]), draw(response), response) for _ in range(2))
        found.append(PreferenceExample(ids[:-1], responses))
    return found


class PlainEngine(SingleEngine):
    """Runs the chosen and the rejected responses in passes of their own, and holds all logits."""

    def __init__(self, model: CausalLM, examples: Sequence[PreferenceExample]) -> None:
        super().__init__(model)
        self._examples = examples

    def train(self, passes: Passes, share: ShareOfLoss, scale: float = 1.0) -> list[paddle.Tensor]:
        chosen, rejected = (
            summed_log_probabilities(
                self.model, [(one.prompt, one.responses[side]) for one in self._examples]
            )
            for side in (0, 1)
        )
        outcome = paddle.stack([chosen, rejected], axis=1).reshape([-1])
        share(0, outcome).backward()
        return [outcome.detach()]


def summed_log_probabilities(
    model: CausalLM, sequences: Sequence[tuple[np.ndarray, Response]]
) -> paddle.Tensor:
    """Log-probability of each response behind its prompt, float32 `[sequences]`, from all logits."""
    shape = len(sequences), max(len(prompt) + response.length for prompt, response in sequences)
    ids, labels, real, learned = (np.zeros(shape, dtype=np.int64) for _ in range(4))
    for row, (prompt, response) in enumerate(sequences):
        start, end = len(prompt), len(prompt) + response.length
        ids[row, :end] = np.concatenate([prompt, response.input_ids])
        labels[row, start:end] = response.labels
        real[row, :end] = 1
        learned[row, start:end] = 1
    logits = model(paddle.to_tensor(ids), attention_mask=paddle.to_tensor(real))
    # Keeps one array of the size of the logits, as log_softmax does, which takes minutes on CPU.
    of_labels = functional.cross_entropy(logits, paddle.to_tensor(labels), reduction="none")
    return -(of_labels * paddle.to_tensor(learned.astype(np.float32))).sum(axis=1)


def memory(field: str) -> int:
    """A field of this process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def measure(form: str, examples: Sequence[PreferenceExample]) -> dict[str, float]:
    """Take one step in this process."""
    config = DpoConfig(model_name_or_path="fresh", output_dir="none", reference_free=True)
    model = new_model(MODEL)
    model.train()
    update = make_updater(model, config)
    engine = SingleEngine(model) if form == "shared" else PlainEngine(model, examples)
    batch = PreferenceCollator(pad_id=0, side="right")(examples)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    began = time.perf_counter()
    result = train_step(
        engine,
        update,
        Pairs(config, None),
        [batch],
        step=1,
        rate=LEARNING_RATE,
    )
    return {
        "bytes": memory("VmHWM") - before,
        "seconds": time.perf_counter() - began,
        "loss": result.loss,
        "grad_norm": result.grad_norm,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--response", type=int, default=256)
    parser.add_argument("--form", choices=list(FORMS), help="measure this one alone, in this process")
    options = parser.parse_args()
    if options.form:
        print(json.dumps(measure(options.form, pairs(options.pairs, options.prompt, options.response))))
        return 0
    found: dict[str, dict[str, float]] = {}
    rows = []
    for form, name in FORMS.items():
        command = [sys.executable, __file__, *sys.argv[1:], "--form", form]
        answer = subprocess.run(command, check=True, timeout=300, stdout=subprocess.PIPE, text=True)
        one = found[form] = json.loads(answer.stdout.splitlines()[-1])
        size, seconds = f"{one['bytes'] / 1e6:.0f} MB", f"{one['seconds']:.1f} s"
        rows.append([name, size, seconds, f"{one['loss']:.6f}", f"{one['grad_norm']:.4f}"])
    ratio = found["shared"]["bytes"] / found["plain"]["bytes"]
    difference = abs(found["shared"]["loss"] - found["plain"]["loss"])
    about = (
        f"{options.pairs} pairs: prompts of {options.prompt} tokens, responses of {options.response}. Ratio"
        f" of the peaks {ratio:.2f}, limit {LIMIT}; difference of the losses {difference:.1e}, limit"
        f" {LARGEST_DIFFERENCE:.0e}.\n\n"
    )
    heads = ["", "peak of a step", "time", "loss", "gradient norm"]
    write_section("Memory of a dpo step", about + table(heads, rows))
    return 0 if ratio <= LIMIT and difference <= LARGEST_DIFFERENCE else 1


if __name__ == "__main__":
    sys.exit(main())
