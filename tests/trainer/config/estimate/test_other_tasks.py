"""The memory of merging and of exporting, in numbers that can be counted by hand."""

from trainer.config.estimate.architecture import Architecture
from trainer.config.estimate.other_tasks import export_memory, merge_memory

FLOAT32 = 4


def model(vocabulary: int) -> Architecture:
    sizes = {"vocab_size": vocabulary, "hidden_size": 32, "n_layer": 5, "n_head": 4}
    found = Architecture.of({"model_type": "bloom", **sizes})
    assert found is not None
    return found


def test_merging_holds_the_embedding_four_times_where_it_is_the_largest_tensor() -> None:
    assert merge_memory(model(1000)).parts.buffers == 4 * 1000 * 32 * FLOAT32


def test_merging_holds_a_matrix_of_the_mlp_four_times_where_that_is_larger() -> None:
    assert merge_memory(model(97)).parts.buffers == 4 * (4 * 32 * 32) * FLOAT32


def test_exporting_holds_all_weights_twice() -> None:
    found = model(97)
    parts = export_memory(found).parts
    assert parts.weights == parts.buffers == found.parameters * FLOAT32
