"""Write tests/golden/preference.json and preference_models.json: the preference losses of TRL.

The first has losses, rewards and gradients for given log-probabilities. The second has them for small golden
models and random responses: there TRL computes the log-probabilities too. The methods of TRL's trainers are
called on objects that hold only what these methods read, so that nothing is loaded, logged or trained.
"""

# pyright: reportMissingImports=false

import copy
import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from trl import DPOTrainer, KTOTrainer
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer
from trl.trainer.utils import add_fused_lm_head

HERE = Path(__file__).parent
PAIRS = 8
JUDGED = 6
BETAS = (0.05, 0.1, 0.5)
DPO_LOSSES = ("sigmoid", "hinge", "ipo", "sppo_hard", "nca_pair")
SMOOTHINGS = (0.1, 0.3)
SIMPO = ((0.5, 0.0), (1.4, 0.1))
WEIGHTS = ((1.0, 1.0), (1.25, 0.75))

#: Of each golden model: the size of its vocabulary, and the weights whose gradients are recorded.
MODELS = {
    "gemma/one_kv_head": (
        101,
        (
            "model.norm.weight",
            "model.layers.0.input_layernorm.weight",
            "model.layers.1.self_attn.k_proj.weight",
        ),
    ),
    "bloom/three_heads": (
        61,
        (
            "transformer.ln_f.weight",
            "transformer.h.0.input_layernorm.bias",
            "transformer.h.1.self_attention.dense.weight",
        ),
    ),
}
#: Prompt tokens, chosen tokens, rejected tokens (the end of a response is among them).
SHAPES = ((5, 4, 7), (3, 1, 2), (8, 6, 3))
EOS = 2
#: The reference is the policy with its embeddings, which are its head too, times this.
REFERENCE_SCALE = 1.5

FUSED_OUTPUTS = ("log_probs", "entropy", "mean_logits", "is_top1")


Example = dict[str, list[int]]


def bare(trainer: type, **fields: Any) -> Any:
    """A trainer that has only what the methods of losses read."""
    made: Any = object.__new__(trainer)
    made.__dict__.update(
        accelerator=SimpleNamespace(
            device=torch.device("cpu"),
            gather=lambda value: value,
            gather_for_metrics=lambda value: value,
        ),
        aux_loss_enabled=False,
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None, gradient_checkpointing=False),
    )
    made.__dict__.update(fields)
    return made


def dpo_trainer(loss_type: str, beta: float, **fields: Any) -> Any:
    settings = {
        "beta": beta,
        "loss_types": [loss_type],
        "loss_weights": [1.0],
        "label_smoothing": 0.0,
        "f_divergence_type": "reverse_kl",
        "ld_alpha": None,
        "use_weighting": False,
    }
    return bare(DPOTrainer, **settings, **fields)


def kto_trainer(beta: float, desirable_weight: float, undesirable_weight: float, **fields: Any) -> Any:
    settings = {
        "beta": beta,
        "loss_type": "kto",
        "calculate_KL": True,
        "desirable_weight": desirable_weight,
        "undesirable_weight": undesirable_weight,
    }
    return bare(KTOTrainer, **settings, **fields)


class Given:
    """A model whose sequences have the given log-probabilities, told apart by their first token."""

    training = True

    def __init__(self, log_probs: torch.Tensor) -> None:
        self.log_probs = log_probs

    def __call__(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        length = input_ids.shape[1] - 1
        per_token = torch.nn.functional.pad(self.log_probs[input_ids[:, 0], None], (length - 1, 0))
        zeros = torch.zeros_like(per_token)
        return SimpleNamespace(log_probs=per_token, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())


def numbers(tensor: torch.Tensor) -> list[float]:
    return [float(f"{value:.9g}") for value in tensor.detach().double().flatten().tolist()]


def draw(generator: torch.Generator, count: int, low: float, high: float) -> torch.Tensor:
    """Multiples of 1/8, which float32 has exactly."""
    return (torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low).mul(
        8
    ).round() / 8


def draw_pairs(generator: torch.Generator) -> dict[str, torch.Tensor]:
    policy = draw(generator, 2 * PAIRS, -60, -1).view(2, PAIRS)
    reference = (policy + draw(generator, 2 * PAIRS, -9, 9).view(2, PAIRS)).clamp(max=-0.125)
    reference[:, 0] = policy[:, 0]
    tokens = torch.randint(1, 30, (2, PAIRS), generator=generator)
    return {"policy": policy, "reference": reference, "tokens": tokens}


def from_dpo_trainer(pairs: dict[str, torch.Tensor], loss_type: str, beta: float) -> dict[str, Any]:
    """One pair at a time: TRL gives the mean of a batch."""
    policy = pairs["policy"].clone().requires_grad_()
    losses, chosen, rejected = [], [], []
    for pair in range(PAIRS):
        width = int(pairs["tokens"][:, pair].max()) + 1
        lengths = pairs["tokens"][:, pair, None]
        places = torch.arange(width).expand(2, width)
        trainer = dpo_trainer(loss_type, beta, precompute_ref_logps=True, model=Given(policy[:, pair]))
        inputs = {
            "input_ids": torch.tensor([[0], [1]]).expand(2, width),
            "attention_mask": torch.ones(2, width, dtype=torch.int64),
            "completion_mask": ((places > 0) & (places <= lengths)).long(),
            "ref_chosen_logps": pairs["reference"][0, pair, None],
            "ref_rejected_logps": pairs["reference"][1, pair, None],
        }
        losses.append(trainer._compute_loss(trainer.model, inputs, return_outputs=False))
        metrics = trainer._metrics["train"]
        chosen += metrics["rewards/chosen"]
        rejected += metrics["rewards/rejected"]
    return result(policy, torch.stack(losses), torch.tensor(chosen), torch.tensor(rejected))


def result(
    policy: torch.Tensor, losses: torch.Tensor, chosen: torch.Tensor, rejected: torch.Tensor
) -> dict[str, Any]:
    (gradient,) = torch.autograd.grad(losses.sum(), policy)
    return {
        "losses": numbers(losses),
        "rewards": [numbers(chosen), numbers(rejected)],
        "gradients": [numbers(side) for side in gradient],
    }


def smoothed(pairs: dict[str, torch.Tensor], beta: float, smoothing: float) -> dict[str, Any]:
    """CPO's sigmoid loss of log ratios is DPO's."""
    trainer = bare(CPOTrainer, loss_type="sigmoid", alpha=0.0, beta=beta, label_smoothing=smoothing)
    policy = pairs["policy"].clone().requires_grad_()
    return result(policy, *trainer.cpo_loss(*(policy - pairs["reference"])))


def simpo(pairs: dict[str, torch.Tensor], beta: float, gamma: float, smoothing: float) -> dict[str, Any]:
    trainer = bare(
        CPOTrainer, loss_type="simpo", alpha=0.0, beta=beta, simpo_gamma=gamma, label_smoothing=smoothing
    )
    policy = pairs["policy"].clone().requires_grad_()
    return result(policy, *trainer.cpo_loss(*(policy / pairs["tokens"])))


def odds_ratio(pairs: dict[str, torch.Tensor], beta: float) -> dict[str, Any]:
    """TRL's losses are to be subtracted and have beta in front."""
    trainer = bare(ORPOTrainer, beta=beta)
    policy = pairs["policy"].clone().requires_grad_()
    losses, chosen, rejected, *_ = trainer.odds_ratio_loss(*(policy / pairs["tokens"]))
    return result(policy, -losses / beta, chosen, rejected)


def pair_cases(pairs: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = []
    for beta in BETAS:
        for loss_type in DPO_LOSSES:
            settings = {"loss_type": loss_type, "beta": beta}
            cases.append({"settings": settings, **from_dpo_trainer(pairs, loss_type, beta)})
        for smoothing in SMOOTHINGS:
            settings = {"loss_type": "sigmoid", "beta": beta, "label_smoothing": smoothing}
            cases.append({"settings": settings, **smoothed(pairs, beta, smoothing)})
        for gamma, smoothing in SIMPO:
            settings = {
                "loss_type": "simpo",
                "beta": beta,
                "simpo_gamma": gamma,
                "label_smoothing": smoothing,
            }
            cases.append({"settings": settings, **simpo(pairs, beta, gamma, smoothing)})
        cases.append({"settings": {"loss_type": "or", "beta": beta}, **odds_ratio(pairs, beta)})
    return cases


def kto_cases(generator: torch.Generator) -> list[dict[str, Any]]:
    """Judged responses, among them batches of one class and batches whose KL term is negative."""
    cases: list[dict[str, Any]] = []
    classes = ([1, 0, 1, 1, 0, 0], [1] * JUDGED, [0] * JUDGED)
    for number, (beta, weights) in enumerate((beta, weights) for beta in BETAS for weights in WEIGHTS):
        reference = draw(generator, JUDGED, -60, -9)
        policy = (reference + draw(generator, JUDGED, -8, 8)).requires_grad_()
        mismatched_reference = draw(generator, JUDGED, -60, -9)
        mismatched = mismatched_reference + draw(generator, JUDGED, -8, 4 + number)
        desirable = torch.tensor(classes[number % len(classes)], dtype=torch.bool)
        everything = torch.cat([policy, mismatched])
        trainer = kto_trainer(beta, *weights, precompute_ref_logps=True, model=Given(everything))
        ids = torch.arange(2 * JUDGED)[:, None].expand(-1, 2)
        mask = torch.tensor([[0, 1]]).expand(JUDGED, 2)
        batch = {
            "input_ids": ids[:JUDGED],
            "attention_mask": torch.ones_like(mask),
            "completion_mask": mask,
            "KL_input_ids": ids[JUDGED:],
            "KL_attention_mask": torch.ones_like(mask),
            "KL_completion_mask": mask,
            "label": desirable,
            "ref_logps": reference,
            "ref_KL_logps": mismatched_reference,
        }
        loss = trainer._compute_loss(trainer.model, batch, return_outputs=False)
        (gradient,) = torch.autograd.grad(loss, policy)
        cases.append(
            {
                "settings": dict(
                    zip(("beta", "desirable_weight", "undesirable_weight"), (beta, *weights), strict=True)
                ),
                "policy": numbers(policy),
                "reference": numbers(reference),
                "mismatched": numbers(mismatched),
                "mismatched_reference": numbers(mismatched_reference),
                "desirable": desirable.tolist(),
                "loss": loss.item(),
                "gradient": numbers(gradient),
                "metrics": kept_metrics(trainer),
            }
        )
    return cases


def kept_metrics(trainer: Any) -> dict[str, float]:
    kept = ("rewards/", "logps/", "kl")
    return {name: values[0] for name, values in trainer._metrics["train"].items() if name.startswith(kept)}


def draw_examples(generator: torch.Generator, vocabulary: int) -> list[Example]:
    def ids(count: int) -> list[int]:
        return torch.randint(4, vocabulary, (count,), generator=generator).tolist()

    return [
        {
            "prompt_ids": ids(prompt),
            "chosen_ids": [*ids(chosen - 1), EOS],
            "rejected_ids": [*ids(rejected - 1), EOS],
        }
        for prompt, chosen, rejected in SHAPES
    ]


def padded(sequences: list[tuple[list[int], list[int]]], prefix: str = "") -> dict[str, torch.Tensor]:
    """Prompts with responses, padded on the right."""
    width = max(len(prompt) + len(response) for prompt, response in sequences)
    ids, attention, completion = (torch.zeros(len(sequences), width, dtype=torch.int64) for _ in range(3))
    for row, (prompt, response) in enumerate(sequences):
        end = len(prompt) + len(response)
        ids[row, :end] = torch.tensor(prompt + response)
        attention[row, :end] = 1
        completion[row, len(prompt) : end] = 1
    return {
        f"{prefix}input_ids": ids,
        f"{prefix}attention_mask": attention,
        f"{prefix}completion_mask": completion,
    }


def policy_and_reference(name: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    policy: Any = AutoModelForCausalLM.from_pretrained(
        HERE / name, dtype=torch.float32, attn_implementation="eager"
    )
    reference = copy.deepcopy(policy).requires_grad_(False)
    reference.get_input_embeddings().weight.data.mul_(REFERENCE_SCALE)
    for model in (policy, reference):
        add_fused_lm_head(model, outputs=FUSED_OUTPUTS)
    return policy, reference


def gradients_of(model: torch.nn.Module, names: tuple[str, ...]) -> dict[str, list[float]]:
    found = {name: numbers(model.get_parameter(name).grad) for name in names}
    model.zero_grad()
    return found


def dpo_of_models(name: str, examples: list[Example], names: tuple[str, ...]) -> list[dict[str, Any]]:
    policy, reference = policy_and_reference(name)
    inputs = padded(
        [(one["prompt_ids"], one[side]) for side in ("chosen_ids", "rejected_ids") for one in examples]
    )
    cases: list[dict[str, Any]] = []
    for loss_type in ("sigmoid", "ipo", "hinge"):
        trainer = dpo_trainer(
            loss_type, 0.1, precompute_ref_logps=False, model=policy.train(), ref_model=reference.eval()
        )
        loss = trainer._compute_loss(policy, dict(inputs), return_outputs=False)
        loss.backward()
        cases.append(
            {
                "settings": {"loss_type": loss_type, "beta": 0.1},
                "logps": log_probabilities(policy, inputs),
                "reference_logps": log_probabilities(reference, inputs),
                "loss": loss.item(),
                "metrics": kept_metrics(trainer),
                "gradients": gradients_of(policy, names),
            }
        )
    return cases


def log_probabilities(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> list[list[float]]:
    """Sums over the chosen and over the rejected responses."""
    labels = inputs["input_ids"].masked_fill(inputs["completion_mask"] == 0, -100)
    with torch.no_grad():
        found = model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            labels=labels,
            fused_lm_head=True,
        )
    return [numbers(side) for side in found.log_probs.sum(dim=1).chunk(2)]


def kto_of_models(name: str, examples: list[Example], names: tuple[str, ...]) -> dict[str, Any]:
    """The first and the last response are desirable; each prompt also has the response of the next one."""
    policy, reference = policy_and_reference(name)
    sides = ("chosen_ids", "rejected_ids", "chosen_ids")
    responses = [one[side] for one, side in zip(examples, sides, strict=True)]
    others = responses[1:] + responses[:1]
    prompts = [one["prompt_ids"] for one in examples]
    desirable = [side == "chosen_ids" for side in sides]
    batch = {
        **padded(list(zip(prompts, responses, strict=True))),
        **padded(list(zip(prompts, others, strict=True)), prefix="KL_"),
        "label": torch.tensor(desirable),
    }
    trainer = kto_trainer(
        0.1, 1.25, 0.75, precompute_ref_logps=False, model=policy.train(), ref_model=reference.eval()
    )
    loss = trainer._compute_loss(policy, batch, return_outputs=False)
    loss.backward()
    return {
        "settings": {"beta": 0.1, "desirable_weight": 1.25, "undesirable_weight": 0.75},
        "responses": responses,
        "mismatched": others,
        "desirable": desirable,
        "loss": loss.item(),
        "metrics": kept_metrics(trainer),
        "gradients": gradients_of(policy, names),
    }


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    pairs = draw_pairs(generator)
    losses = {
        "pairs": {name: [numbers(side) for side in sides] for name, sides in pairs.items()},
        "dpo": pair_cases(pairs),
        "kto": kto_cases(generator),
    }
    (HERE / "preference.json").write_text(json.dumps(losses) + "\n", encoding="utf-8")
    models = []
    for name, (vocabulary, names) in MODELS.items():
        examples = draw_examples(generator, vocabulary)
        models.append(
            {
                "model": name,
                "reference_scale": REFERENCE_SCALE,
                "examples": examples,
                "dpo": dpo_of_models(name, examples, names),
                "kto": kto_of_models(name, examples, names),
            }
        )
    (HERE / "preference_models.json").write_text(json.dumps(models) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
