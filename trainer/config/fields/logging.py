"""What is reported, and how often."""

from typing import Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import no_effect, setting
from trainer.config.values import Flag, Text, TextList, Whole

REPORTING = no_effect("metrics are in the event stream of the job")
NO_REPORTS = no_effect(REPORTING.reason, (["none"], []))
ALWAYS = no_effect("it is always on", (True,))


class LoggingFields(FieldGroup):
    """Log lines and metrics."""

    logging_strategy: Literal["no", "steps", "epoch"] = setting("steps", "When to log training metrics.")
    logging_steps: Whole = setting(500, "Optimizer steps between log lines.", ge=1)
    logging_first_step: Flag = setting(False, "Log the first optimizer step too.")
    disable_tqdm: Flag | None = setting(
        None, "Log plain lines.", no_effect("logs are always plain lines", (True,))
    )
    logging_dir: Text | None = setting(None, "Folder of a visual log.", REPORTING)
    report_to: TextList | None = setting(None, "Programs to report to.", NO_REPORTS)
    run_name: Text | None = setting(None, "Name shown by such programs.", REPORTING)
    metrics_output_path: Text | None = setting(None, "Extra folder of metrics.", REPORTING)
    wandb_api_key: Text | None = setting(None, "Key of Weights & Biases.", REPORTING, secret=True)
    wandb_http_proxy: Text | None = setting(None, "Proxy for Weights & Biases.", REPORTING, secret=True)
    log_on_each_node: Flag = setting(True, "Log on every host.", no_effect("every process logs"))
    skip_memory_metrics: Flag = setting(
        True, "Leave memory figures out.", no_effect("memory figures are not logged")
    )
    skip_profile_timer: Flag | None = setting(
        True, "Leave timer figures out.", no_effect("timers of single steps are not logged")
    )
    count_trained_tokens: Flag = setting(False, "Count the tokens trained on.", ALWAYS)
