"""Exporting a model as a static graph."""

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import REQUIRED, no_effect, setting
from trainer.config.values import PathText, Text


class ExportFields(FieldGroup):
    """Arguments of task export."""

    model_name_or_path: PathText = setting(REQUIRED, "Folder or hub name of a model; it may be quantized.")
    output_dir: PathText = setting(REQUIRED, "Folder of the graph, inside the job.")
    device: Text = setting("cpu", "Device to compute on.", no_effect("graphs are traced on the host"))
