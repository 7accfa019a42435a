"""How checkpoints are written and read."""

from typing import Annotated, Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import no_effect, refused, setting
from trainer.config.values import Flag, Text, Whole, Words

ONE_LAYOUT = no_effect("checkpoints have one layout, which any number of devices resumes from")
PDC = refused("checkpoints are read from folders only")


class CheckpointFields(FieldGroup):
    """Checkpoint layout and contents."""

    unified_checkpoint: Flag = setting(
        False, "Write checkpoints that any parallel layout resumes from; this service always does."
    )
    unified_checkpoint_config: (
        Annotated[
            str,
            Words(
                "skip_save_model_weight",
                "master_weight_compatible",
                "remove_master_weight",
                "async_save",
                "enable_all_options",
                "ignore_merge_optimizer",
            ),
        ]
        | None
    ) = setting("", "Switches of unified checkpoints, of which async_save has an effect: see use_async_save.")
    ckpt_quant_stage: Literal["O0", "O1", "O2"] = setting(
        "O0", "Compress optimizer state.", no_effect("optimizer state is saved in full precision")
    )
    use_async_save: Flag | None = setting(
        False, "Write checkpoints beside training, which stops only to copy what changes."
    )
    ordered_save_group_size: Whole = setting(0, "Ranks that write at a time.", ONE_LAYOUT, ge=0)
    save_on_each_node: Flag = setting(False, "Write on every host.", ONE_LAYOUT)
    save_sharded_model: Flag = setting(False, "Write each rank's part.", ONE_LAYOUT)
    load_sharded_model: Flag = setting(False, "Read each rank's part.", ONE_LAYOUT)
    save_sharding_stage1_model_include_freeze_params: Flag | None = setting(
        False, "Write frozen parameters too.", ONE_LAYOUT
    )
    force_reshard_pp: Flag | None = setting(False, "Split pipeline stages anew on resume.", ONE_LAYOUT)
    ignore_load_lr_and_optim: Flag | None = setting(False, "On resume, start optimizer and schedule afresh.")
    ignore_save_lr_and_optim: Flag | None = setting(False, "Leave optimizer state out of checkpoints.")
    output_signal_dir: Text | None = setting(
        None,
        "Folder of completion marks.",
        no_effect("a checkpoint has its final name only when it is complete"),
    )
    pdc_download_ckpt: Flag | None = setting(False, "Download the checkpoint from PDC.", PDC)
    pdc_download_timeout: Whole | None = setting(
        300, "Seconds to wait for that download.", no_effect("it belongs to pdc_download_ckpt"), ge=0
    )
