"""The data and how examples are made of it."""

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import REQUIRED, later, no_effect, setting
from trainer.config.values import Flag, JsonObject, PathText, Real, Text, Whole

UNUSED = no_effect("PaddleNLP's fine-tuning script does not use it either")


class DataFields(FieldGroup):
    """Data options of every training task."""

    greedy_zero_padding: Flag = setting(
        False,
        "With zero_padding: of each 500 examples, pack every one into the open sequence with the most room.",
    )
    lazy: Flag = setting(
        False, "Read the training data as a stream, in the order of the files; needs max_steps."
    )


class SftDataFields(FieldGroup):
    """Data of finetune and quantize: records of source and target."""

    dataset_name_or_path: PathText = setting(
        REQUIRED, "Folder with train.json and dev.json (JSON lines), or train/ and dev/ full of such files."
    )
    task_name: Text | None = setting(
        None, "Part of a built-in data set.", no_effect("data is read from files, which have no parts")
    )
    src_length: Whole = setting(1024, "Most tokens of a source; the front is cut off.", ge=1)
    max_length: Whole = setting(2048, "Most tokens of source and target together; the end is cut off.", ge=2)
    zero_padding: Flag = setting(
        False,
        "Pack examples into sequences of max_length, none of them seeing another; batch sizes count these.",
    )
    pad_to_multiple_of: Whole | None = setting(None, "Pad each batch to a multiple of so many tokens.", ge=1)
    pad_to_max_length: Flag = setting(False, "Pad every batch to max_length.")
    chat_template: Text | None = setting(
        None,
        "Chat template: a file or folder (chat_template.json of PaddleNLP, chat_template.jinja or"
        " tokenizer_config.json); `none`: raw text; unset: the tokenizer's, if it has one.",
    )
    autoregressive: Flag = setting(
        False, "Learn every token of one text, not only the target.", later("autoregressive training")
    )
    use_pose_convert: Flag = setting(False, "PoSE position skipping.", later("PoSE"))
    eval_with_do_generation: Flag = setting(
        False, "Evaluate generated answers too: rouge1, rouge2, rougel, bleu4."
    )
    save_generation_output: Flag = setting(
        False,
        "Keep the answers generated in evaluation, as generated_output.json in output_dir.",
    )
    dataset_text_field: Text = setting("text", "Field of plain-text records.", UNUSED)
    max_seq_length: Whole = setting(
        2048, "Unused length.", no_effect("max_length is the length that counts"), ge=1
    )
    dataset_num_proc: Whole | None = setting(None, "Processes that tokenize.", UNUSED, ge=1)
    dataset_batch_size: Whole = setting(1000, "Records tokenized at once.", UNUSED, ge=1)
    dataset_kwargs: JsonObject | None = setting(None, "Extra options of the data set.", UNUSED)
    model_init_kwargs: JsonObject | None = setting(None, "Extra options of the model.", UNUSED)
    eval_packing: Flag | None = setting(None, "Pack evaluation data.", UNUSED)


class PreferenceDataFields(FieldGroup):
    """Data of dpo and kto: records of a prompt and judged responses."""

    train_dataset_path: PathText = setting("./data/train.jsonl", "Training records (JSON lines).")
    dev_dataset_path: PathText = setting("./data/dev.jsonl", "Evaluation records (JSON lines).")
    max_seq_len: Whole = setting(4096, "Most tokens of prompt and responses together.", ge=2)
    max_prompt_len: Whole = setting(
        2048, "Most tokens of a prompt that had to be cut; below max_seq_len.", ge=1
    )
    chat_template: Text | None = setting(
        None,
        "Chat template: a file or folder (chat_template.json of PaddleNLP, chat_template.jinja or"
        " tokenizer_config.json); unset or `none`: raw text.",
    )


class GenerationFields(FieldGroup):
    """Sampling of generated text in evaluation."""

    top_k: Whole = setting(
        1,
        "Draw generated tokens among so many likeliest ones; 1: always the likeliest, 0: among all.",
        ge=0,
    )
    top_p: Real = setting(
        1.0,
        "Draw generated tokens among the likeliest ones of this total probability.",
        gt=0,
        le=1,
    )
