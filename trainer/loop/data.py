"""The data of a run: what it trains on and what it evaluates, read as the arguments say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer.config.data_files import find_data_files
from trainer.config.problems import Problem
from trainer.data.dataset import Split, encode_split, split_warnings
from trainer.data.encoding import Encoder
from trainer.data.files import read_records
from trainer.data.kept_examples import FOLDER
from trainer.data.rows import MemoryRows, StreamedRows, TrainingRows, arrange, arranged_split
from trainer.data.special_texts import special_text_warning
from trainer.loop.evaluation import GENERATED_FILE, EvaluationData, Generation

if TYPE_CHECKING:
    from trainer.config.schema import FinetuneConfig, SftConfig
    from trainer.events import EventWriter
    from trainer.tokenizers import Tokenizer


def training_rows(config: FinetuneConfig, encoder: Encoder, events: EventWriter) -> TrainingRows:
    """The rows to train on: in memory, or with `lazy` streamed from the files.

    Raises:
        DataError: a record is broken, or there is nothing to learn.
    """
    folder = Path(config.dataset_name_or_path)
    if not config.lazy:
        split = read_split("train", config, encoder, events)
        seed = config.seed if config.data_seed is None else config.data_seed
        return MemoryRows(arranged_split(split, config), seed, split.fingerprint())
    files = find_data_files(folder)["train"]
    content = ", ".join(f"{path.name} ({path.stat().st_size} bytes)" for path in files)
    return StreamedRows(
        records=lambda: read_records(folder, "train"),
        encoder=encoder,
        max_length=config.max_length,
        arrange=lambda examples: arrange(examples, config),
        content=content,
    )


def evaluation_data(
    config: SftConfig, encoder: Encoder, tokenizer: Tokenizer, events: EventWriter
) -> EvaluationData:
    """The dev split, packed like the training data, with what is to be generated.

    Raises:
        DataError: a record is broken, or there is nothing to evaluate.
    """
    split = read_split("dev", config, encoder, events)
    return EvaluationData(
        rows=arranged_split(split, config),
        examples=len(split.examples),
        loss_only=config.prediction_loss_only,
        generation=_generation(split, config, encoder, tokenizer, events)
        if config.eval_with_do_generation
        else None,
    )


def _generation(
    split: Split, config: SftConfig, encoder: Encoder, tokenizer: Tokenizer, events: EventWriter
) -> Generation | None:
    prompts = [(record, encoder.prompt(record)) for record in split.records]
    prompted = [(record, prompt) for record, prompt in prompts if prompt]
    if len(prompted) < len(prompts):
        msg = (
            f"{len(prompts) - len(prompted)} of {len(prompts)} dev records have a source without a token, so"
        )
        msg += " no answer is generated for them"
        events.warn(Problem(("eval_with_do_generation",), msg, "Give them a source."))
    if not prompted:
        return None
    longest = max(len(prompt) for _, prompt in prompted)
    return Generation(
        records=[record for record, _ in prompted],
        prompts=[prompt for _, prompt in prompted],
        tokenizer=tokenizer,
        max_new_tokens=max(1, config.max_length - longest),
        top_k=config.top_k,
        top_p=config.top_p,
        seed=config.seed,
        output=Path(config.output_dir) / GENERATED_FILE if config.save_generation_output else None,
    )


def read_split(name: str, config: SftConfig, encoder: Encoder, events: EventWriter) -> Split:
    """A split in memory, encoded; what is odd about it is told.

    Raises:
        DataError: a record is broken, or there is nothing to learn.
    """
    records = read_records(Path(config.dataset_name_or_path), name)
    split = encode_split(name, records, encoder, config.max_length, Path(config.output_dir) / FOLDER)
    for warning in split_warnings(split, config.max_length):
        events.warn(warning)
    texts = ((record.location, {"src": record.src, "tgt": record.tgt}) for record in split.records)
    if warning := special_text_warning(name, texts, encoder.special_tokens):
        events.warn(warning)
    return split
