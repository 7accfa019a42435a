"""What the job does, how long, with which batches; where it writes."""

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import REQUIRED, later, no_effect, refused, setting
from trainer.config.values import Flag, PathText, PositiveOrUnset, Real, TextList, Whole, WholeLists

COLUMNS = no_effect("records have fixed fields, so there are no columns to choose")
UNUSED = no_effect("these tasks do not use it")


class LoopFields(FieldGroup):
    """The training loop."""

    output_dir: PathText = setting(REQUIRED, "Folder of checkpoints and of the final model, inside the job.")
    overwrite_output_dir: Flag = setting(
        False, "Start fresh; false: resume from the newest checkpoint in output_dir."
    )
    do_train: Flag = setting(False, "Train.")
    do_eval: Flag = setting(False, "Evaluate; true as well when evaluation_strategy is not `no`.")
    do_predict: Flag = setting(False, "Predict on test.json.", later("prediction"))
    do_export: Flag = setting(
        False,
        "Export an inference model.",
        refused("a graph is made by a job of its own: task export, with this job's result as the model"),
    )
    per_device_train_batch_size: Whole = setting(8, "Examples per device and micro-step.", ge=1)
    per_device_eval_batch_size: Whole = setting(8, "Examples per device in evaluation.", ge=1)
    gradient_accumulation_steps: Whole = setting(1, "Micro-steps per optimizer step.", ge=1)
    num_train_epochs: Real = setting(
        1.0, "Epochs, fractions allowed; ignored with max_steps.", gt=0, le=1_000_000
    )
    max_steps: PositiveOrUnset = setting(-1, "Optimizer steps of the whole training.")
    seed: Whole = setting(
        42, "Seed of dropout, noise, fresh adapters and, unless data_seed is set, the data.", ge=0, lt=2**32
    )
    data_seed: Whole | None = setting(
        None, "Seed of the order of the training data; unset: seed.", ge=0, lt=2**32
    )
    dataloader_drop_last: Flag = setting(False, "Drop the last, smaller batch of an epoch.")
    dataloader_num_workers: Whole = setting(
        0, "Processes that load data.", no_effect("batches are made in the training process"), ge=0
    )
    distributed_dataloader: Flag | None = setting(
        False, "Load data on some ranks only.", no_effect("every process reads its data itself")
    )
    ignore_data_skip: Flag = setting(False, "On resume, start the data from the beginning.")
    skip_data_intervals: WholeLists | None = setting(
        None, "Ranges of steps whose data is left out.", later("skipping ranges of data")
    )
    resume_from_checkpoint: PathText | None = setting(None, "Checkpoint folder to resume from.")
    remove_unused_columns: Flag | None = setting(True, "Drop unknown record fields.", COLUMNS)
    label_names: TextList | None = setting(None, "Names of label fields.", COLUMNS)
    past_index: Whole = setting(-1, "Index of a past state among outputs.", UNUSED)
    lazy_data_processing: Flag | None = setting(True, "Prepare records when they are used.", UNUSED)
    pad_token_id: Whole = setting(
        0, "Padding token.", no_effect("the tokenizer's padding token is used"), ge=0
    )
    benchmark: Flag = setting(False, "Speed benchmark: train only, save nothing.", later("benchmark mode"))
    autotuner_benchmark: Flag = setting(
        False, "Probe of an auto-tuner: five steps on random weights.", later("the auto-tuner probe")
    )
