import pytest

from trainer.config.problems import DataError
from trainer.models.bloom.configuration import BloomConfig

SIZES = {"hidden_size": 48, "n_layer": 2, "n_head": 6}


def refused(fields: dict[str, object]) -> dict[str, str]:
    with pytest.raises(DataError) as caught:
        BloomConfig.from_dict(fields)
    return {str(problem.loc[-1]): problem.msg for problem in caught.value.problems}


def test_an_empty_file_is_refused_rather_than_read_as_a_toy():
    assert refused({}).keys() == {"hidden_size", "num_hidden_layers", "num_attention_heads"}


@pytest.mark.parametrize("width", ["hidden_size", "n_embed", "n_embd"])
@pytest.mark.parametrize("layers", ["n_layer", "num_hidden_layers"])
@pytest.mark.parametrize("heads", ["n_head", "num_attention_heads"])
def test_sizes_are_read_under_every_name_they_have(width: str, layers: str, heads: str):
    config = BloomConfig.from_dict({width: 48, layers: 2, heads: 6})
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (48, 2, 6)
    assert (config.head_dim, config.num_key_value_heads) == (8, 6)


def test_one_size_under_two_names_must_be_one_size():
    assert BloomConfig.from_dict({**SIZES, "num_hidden_layers": 2}).num_hidden_layers == 2
    found = refused({**SIZES, "num_hidden_layers": 3})
    assert found == {
        "num_hidden_layers": "got {'n_layer': 2, 'num_hidden_layers': 3}, expected them to be equal"
    }


def test_what_a_file_leaves_out_is_what_every_published_model_has():
    config = BloomConfig.from_dict(SIZES)
    assert (config.vocab_size, config.layer_norm_epsilon, config.initializer_range) == (250880, 1e-5, 0.02)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 3)
    assert config.tie_word_embeddings
    assert not config.apply_residual_connection_post_layernorm
    assert config.hidden_dropout == config.attention_dropout == 0.0


def test_files_have_the_names_that_other_tools_read():
    content = BloomConfig.from_dict({"n_embed": 48, "num_hidden_layers": 2, "n_head": 6}).to_dict()
    assert content["architectures"] == ["BloomForCausalLM"]
    assert content["model_type"] == "bloom"
    assert {name: content[name] for name in SIZES} == SIZES
    assert not content.keys() & {"n_embed", "num_hidden_layers", "num_attention_heads", "head_dim"}


def test_fields_without_meaning_here_are_written_back():
    raw = {**SIZES, "pretraining_tp": 4, "masked_softmax_fusion": True, "slow_but_exact": False, "note": [1]}
    content = BloomConfig.from_dict(raw).to_dict()
    assert content == {**content, **raw}
    assert BloomConfig.from_dict(content).to_dict() == content


def test_every_wrong_value_is_named_at_once():
    found = refused(
        {**SIZES, "n_layer": 0, "hidden_dropout": 1.0, "layer_norm_epsilon": "x", "vocab_size": True}
    )
    assert found.keys() == {"num_hidden_layers", "hidden_dropout", "layer_norm_epsilon", "vocab_size"}


def test_heads_must_divide_the_width():
    found = refused({**SIZES, "n_head": 7})
    assert found == {"num_attention_heads": "got 7, expected a divisor of hidden_size (48)"}
