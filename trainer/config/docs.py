"""The tables of docs/config.md, made from the fields: `python -m trainer.config.docs [FILE]`."""

import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

from trainer.config.explain import expectation
from trainer.config.fields.base import FieldGroup
from trainer.config.names import ALIASES, DROPPED
from trainer.config.page import cell, write_page
from trainer.config.schema import CONFIGS
from trainer.config.sections import SECTIONS
from trainer.config.standing import standing_of
from trainer.config.tasks import AVAILABLE_TASKS, TASKS
from trainer.config.values import show

FILE = Path("docs/config.md")

INTRODUCTION = """# The argument file

Made by `python -m trainer.config.docs`; do not edit.

A job's `config` is the JSON argument file of PaddleNLP 3.0.0b4: the same names, the same defaults.

* Names are exact. An unknown name is refused with the nearest known one; the old names below still work, with
  a warning.
* `null` means "not set". Numbers and booleans may be written as text (`"3e-05"`, `"True"`, `"no"`). A whole
  number may not be written with a decimal point. A list of one may be written without its brackets.
* No `do_*` flag at all in a training task means `do_train`, with a warning.
* All problems are answered at once.
* In a job of the service, `dataset:<id>` names uploaded data, and `job:<id>` or `job:<id>/<checkpoint>` what
  a job has made ([references](api.md)).

"In this version" says what becomes of an argument that is set. **yes**: it does what it says. **no effect**:
it is accepted, with a warning that gives the reason. **refused**: any value but the default (and those named)
is refused. Arguments of a task that is not available are checked in the same way; the task itself is refused.

## Data files

`dataset_name_or_path` is a folder. A split is the file `train.json` or `dev.json`, else every such file in
the folder `train/` or `dev/`, in order of names. `.jsonl` and gzip (`.json.gz`, `.jsonl.gz`) will do as well.
`dev` is needed when there is evaluation. A file holds JSON lines in UTF-8, one record a line; blank lines are
skipped:

```json
{"src": "a question", "tgt": "the answer to learn"}
{"src": ["first turn", "second turn"], "tgt": ["first answer", "second answer"]}
```

Every line is read before a device is taken. Errors are counted by kind, and the first ten are shown with
their line numbers. `regatta preview CONFIG.json` shows what is made of the first records, token by token.

### Preference data

`train_dataset_path` and `dev_dataset_path` of dpo and kto are files of JSON lines (gzip with a name in
`.gz`). `src` and `tgt` are a conversation that ends with the user's turn, so `tgt` has one text fewer than
`src` (none for one turn); `response` is what was judged as its answer:

```json
{"src": "a question", "response": ["one answer", "another"], "sort": [1, 0]}
{"src": ["first turn", "second turn"], "tgt": ["first answer"], "response": ["an answer"], "sort": [0]}
```

* dpo: two responses and two different whole numbers; the larger one marks the chosen response.
* kto: one response; `sort` is `[1]` (desirable) or `[0]` (undesirable). At least two records are needed:
  for the KL term each prompt also gets the response of the next record that has another prompt.

Space around texts is dropped. Records are raw text unless `chat_template` names a template: a tokenizer's own
one is not used by itself. Raw text has the tokenizer's special tokens before every turn of the user, and EOS
behind every answer and response. Examples are always packed into sequences of `max_seq_len`; the responses of
an example share its prompt and do not see each other. What is longer than `max_seq_len` loses its oldest
turns first; then the prompt keeps its last `max_prompt_len` tokens; then both responses are cut in proportion
to their lengths, and end without EOS. Records of which nothing can be learned are left out, and a warning
names them. `lazy` reads the training file while it trains.

The reference policy is the model of `model_name_or_path` as it was before training. With `lora` it is that
model without an adapter, also when `lora_path` continues one.

## From records to tokens

Without a chat template a source is encoded with the tokenizer's special tokens and keeps its last
`src_length` tokens; its target follows and ends with EOS. A target that does not fit in `max_length` is
cut and gets no EOS. Every answer of a conversation is learned; the oldest turns are left out while it is
too long. Records of which nothing can be learned are left out, and a warning names them.

A **chat template** is used when the tokenizer has one or `chat_template` names one:

* a Jinja text (`chat_template.jinja`, or `chat_template` in `tokenizer_config.json`), called with
  `messages` in the roles `user` and `assistant`, `add_generation_prompt` and the special tokens.
  `system` of a record's `context` becomes the first message; its other entries are variables. It runs
  in Jinja's sandbox;
* PaddleNLP's `chat_template.json`: `system`, `conversation` (the user's part and the answer's) and
  `query`.

Only answers are learned, with what the template puts behind them. A warning says when that is no token
that ends an answer.

A rendered text is encoded with its special tokens, as transformers does it. So a special token that is
written out in a record's texts (`<end_of_turn>`) acts as that token and may end a turn. A warning counts
such records and names the first, except with lazy. Without a template these letters are plain text.

**zero_padding** puts several examples into one sequence of `max_length`; each sees itself alone and its
positions begin at 0, so the numbers are those of training without it. Batch sizes count sequences. Log,
metrics and result have `padding_share`.

**lazy** reads the training data while it trains, in the order of the files and epoch after epoch; a
resumed run reads again up to the record where it was.

**eval_with_do_generation** lets the model write the last answer of every dev record, with `max_length`
less the longest prompt as the most tokens, and adds `eval_rouge1`, `eval_rouge2`, `eval_rougel` (F1 of
rouge-score) and `eval_bleu4` (sacrebleu, between 0 and 1), over words and single Chinese characters.

## Quantization

Task quantize rounds the linear layers of the decoder layers, not embedding and head, on one device. It is
calibrated on the records of `quant.json` (or the folder `quant/`), else on those of `train.json`, with a
warning: batches of `per_device_train_batch_size` rows, `ptq_step`, `gptq_step` or `awq_step` of them. Layer
by layer, later layers see what the quantized ones before them give.

* `do_ptq` with `quant_type`: a8w8 (weights and inputs in 8 bits, one scale for an input), weight_only_int8,
  weight_only_int4; stored as compressed-tensors stores them. `shift`, `smooth` and the piecewise search come
  first and leave the model's outputs as they are; where a layer cannot take them up, a warning says so.
* `do_gptq`: weights in 4 bits (8 with weight_only_int8), in GPTQ's layout, with activation order.
* `do_awq`: the same bits in groups, in the layout of compressed-tensors; `auto_clip` narrows ranges.

`weight_quant_method` groupwise gives every 128 inputs a scale of their own, or as many fewer as divide the
inputs of all layers. An adapter is merged into its base first, whether it is named as the model or in
`lora_path` with `lora`. output_dir may not be, nor contain, the folder of the model or the adapter.

The result is a model directory with `quantization_report.json`: the relative error of every layer, what was
skipped and why, and with `do_eval` the metrics before and after. The relative error of a layer is the sum of
the squared differences that quantization makes to its outputs on calibration data, over the sum of their
squares: 0 is no difference, 0.01 differences of a tenth of the outputs' size. `rtn_error` is the same, had
weights only been rounded to nearest. `dead_inputs` are inputs that were always zero, `dead_outputs` outputs
whose weights are all zero; a warning names their layers. `all_results.json`, and `metrics` in the answer of
GET /jobs/{id}/result, have `eval_ppl_before`, `eval_ppl`, `bytes_before`, `bytes_after`,
`worst_layer_error` (the largest relative error), `quantized_layers` and more. GET /jobs/{id}/metrics has the
two evaluations of `do_eval`: before, at step 0, and after, at the last step (a step is a decoder layer).

Beside the float model, memory holds the work of one decoder layer, however many there are: the hidden states
of the calibration data, a Hessian of each input (GPTQ) or a sample of it, and a copy of the largest matrix.
A layer that takes long tells every 5 seconds how far it is, and a stop is heeded in the middle of it.

## Export

Task export writes `model.json` and `model.pdiparams`, a static graph in float32 that `paddle.jit.load` and
Paddle's inference library read: `input_ids`, int64 [batch, sequence] of any size and without padding, to
logits, float32 [batch, sequence, vocabulary]. Weights of a quantized model are float32 again, and inputs of
its layers are not rounded. The graph is loaded and run before the job succeeds; the metric `max_difference`
is how far its logits are from the model's, relative to the largest one, at most 1e-4. Merge an adapter first.
output_dir may not be, contain, or lie in the folder of the model. `do_export` in another task's argument file
is refused with a pointer to this task.

## Several devices

A job runs on as many devices as its parallel degrees multiply to, or on a multiple of that, one process each:

    devices = tensor_parallel_degree x pipeline_parallel_degree x sharding_parallel_degree x data parallel

What the degrees leave becomes data parallel; with `sharding` and no `sharding_parallel_degree` all of it
becomes sharding. A step takes `per_device_train_batch_size` x `gradient_accumulation_steps` examples for each
share of devices that has data of its own, of which there are devices / (`tensor_parallel_degree` x
`pipeline_parallel_degree`). With as many examples in a step, every layout gives the numbers of one process.
Checkpoints resume in any layout.

What cannot work is refused with the arithmetic, by the sizes in the model's `config.json`:

* `num_attention_heads` and `intermediate_size` (BLOOM: 4 x `hidden_size`) divide by `tensor_parallel_degree`.
  Key heads that do not are on every device, and the vocabulary is filled up.
* There is a layer for each of the `pipeline_parallel_degree` x `virtual_pp_degree` chunks. They need not have
  equally many.
* `virtual_pp_degree` above 1 takes a pipeline of more than 2 devices.
* A pipeline goes with `sharding` stage1 only, and neither with `prefix_tuning` nor `eval_with_do_generation`.
* `split_param` in `sharding_parallel_config` goes with stage1 only.

A pipeline keeps its devices busy with at least `pipeline_parallel_degree` `gradient_accumulation_steps`; a
warning tells how long they wait with fewer.
"""


def render() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_tasks(), *_names(), *_sections()]) + "\n"


def _tasks() -> Iterator[str]:
    yield "## Tasks\n"
    yield "| task | does | available |"
    yield "| --- | --- | --- |"
    for task in TASKS:
        does = _first_line(CONFIGS[task]) if task in CONFIGS else "No arguments are defined yet."
        available = "yes" if task in AVAILABLE_TASKS else "not in this version"
        yield f"| `{task}` | {does} | {available} |"
    yield ""


def _names() -> Iterator[str]:
    yield "## Old names\n"
    yield "| name | now |"
    yield "| --- | --- |"
    for old, new in ALIASES.items():
        yield f"| `{old}` | `{new}` |"
    for old, remedy in DROPPED.items():
        yield f"| `{old}` | refused: {cell(remedy)} |"
    yield ""


def _sections() -> Iterator[str]:
    for title, groups in SECTIONS:
        yield f"## {title}\n"
        yield "| argument | tasks | value | default | meaning | in this version |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for group in groups:
            for name in group.__annotations__:
                yield _row(group, name)
        yield ""


def _row(group: type[FieldGroup], name: str) -> str:
    owners = {task: config for task, config in CONFIGS.items() if issubclass(config, group)}
    fields = {task: config.model_fields[name] for task, config in owners.items()}
    field = next(iter(fields.values()))
    cells = [
        f"`{name}`",
        "all" if len(owners) == len(CONFIGS) else ", ".join(owners),
        expectation(field),
        _default(fields),
        field.description or "",
        _standing(field),
    ]
    return f"| {' | '.join(cell(text) for text in cells)} |"


def _default(fields: dict[str, FieldInfo]) -> str:
    by_default: dict[str, list[str]] = {}
    for task, field in fields.items():
        value = (
            "required" if field.is_required() else f"`{show(field.get_default(call_default_factory=True))}`"
        )
        by_default.setdefault(value.replace("`null`", "not set"), []).append(task)
    if len(by_default) == 1:
        return next(iter(by_default))
    return "; ".join(f"{default} ({', '.join(tasks)})" for default, tasks in by_default.items())


def _standing(field: FieldInfo) -> str:
    standing = standing_of(field)
    if standing.kind == "supported":
        return "yes"
    if standing.kind == "no_effect":
        return f"no effect: {standing.reason}"
    allowed = f" (except {', '.join(map(show, standing.harmless))})" if standing.harmless else ""
    return f"refused{allowed}: {standing.reason}"


def _first_line(config: type[FieldGroup]) -> str:
    return (config.__doc__ or "").splitlines()[0]


def main(arguments: list[str]) -> None:
    """Write the page to the given file, or to docs/config.md."""
    write_page(arguments, "trainer.config.docs", "Write the page of all arguments.", FILE, render)


if __name__ == "__main__":
    main(sys.argv[1:])
