import pytest

from trainer.config.problems import ConfigError
from trainer.config.topology import Topology
from trainer.parallel.pipeline_stages import chunks_of, stages_of


def test_layers_are_spread_evenly_with_the_embedding_first_and_the_head_last():
    assert chunks_of(Topology(pipeline=2), 4) == [range(3), range(3, 6)]


def test_a_process_with_several_chunks_takes_every_pipelineth_one():
    topology = Topology(pipeline=4, virtual=2)
    assert stages_of(topology, 0, 8) == {0, 1, 5}
    assert stages_of(topology, 3, 8) == {4, 8, 9}


@pytest.mark.parametrize(
    ("pipeline", "layers", "sizes"),
    [(2, 5, [3, 2]), (4, 5, [1, 2, 1, 1]), (4, 6, [1, 2, 2, 1]), (4, 7, [2, 2, 2, 1]), (4, 18, [4, 5, 5, 4])],
)
def test_left_over_layers_go_to_the_middle_and_never_to_the_process_with_the_head(pipeline, layers, sizes):
    chunks = chunks_of(Topology(pipeline=pipeline), layers)
    found = [sum(1 <= stage <= layers for stage in chunk) for chunk in chunks]
    assert found == sizes


@pytest.mark.parametrize("layers", range(8, 40))
def test_every_stage_is_in_exactly_one_process(layers):
    topology = Topology(pipeline=4, virtual=2)
    held = [stage for rank in range(4) for stage in stages_of(topology, rank, layers)]
    assert sorted(held) == list(range(layers + 2))


def test_one_process_holds_everything():
    assert stages_of(Topology(), 0, 3) == {0, 1, 2, 3, 4}


def test_more_chunks_than_layers_are_refused():
    with pytest.raises(ConfigError, match="8 chunks of layers, but the model has 7 layers"):
        stages_of(Topology(pipeline=4, virtual=2), 0, 7)
