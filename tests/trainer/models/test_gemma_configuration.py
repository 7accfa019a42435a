import pytest

from trainer.config.problems import DataError
from trainer.models.gemma.configuration import GemmaConfig


def refused(**fields: object) -> dict[str, str]:
    with pytest.raises(DataError) as caught:
        GemmaConfig.from_dict(fields)
    return {str(problem.loc[-1]): problem.msg for problem in caught.value.problems}


def test_an_empty_file_means_the_published_7b():
    config = GemmaConfig.from_dict({})
    assert (config.hidden_size, config.num_attention_heads, config.head_dim) == (3072, 16, 256)
    assert config.tie_word_embeddings


def test_fields_without_meaning_here_are_written_back():
    content = GemmaConfig.from_dict(
        {"model_type": "gemma", "use_cache": False, "my_note": {"a": 1}}
    ).to_dict()
    assert content["use_cache"] is False
    assert content["my_note"] == {"a": 1}
    assert content["model_type"] == "gemma"
    assert content["architectures"] == ["GemmaForCausalLM"]


def test_writing_and_reading_gives_the_same_configuration():
    config = GemmaConfig.from_dict({"hidden_size": 64, "eos_token_id": [1, 107], "my_note": "x"})
    again = GemmaConfig.from_dict(config.to_dict())
    assert again.to_dict() == config.to_dict()


def test_the_rotary_base_is_found_where_transformers_5_writes_it():
    config = GemmaConfig.from_dict({"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}})
    assert config.rope_theta == 500.0


@pytest.mark.parametrize("name", ["gelu", "gelu_pytorch_tanh"])
def test_both_names_of_the_activation_mean_the_tanh_form(name: str):
    config = GemmaConfig.from_dict({"hidden_act": name, "hidden_activation": None})
    assert config.to_dict()["hidden_act"] == "gelu_pytorch_tanh"
    assert config.to_dict()["hidden_activation"] == "gelu_pytorch_tanh"


def test_every_wrong_value_is_named_at_once():
    found = refused(
        hidden_size=0, vocab_size="many", rms_norm_eps="small", attention_dropout=1.0, hidden_act="relu"
    )
    assert found.keys() == {"hidden_size", "vocab_size", "rms_norm_eps", "attention_dropout", "hidden_act"}


@pytest.mark.parametrize("value", [0, 0.0, -1, float("inf"), float("nan")])
def test_the_rotary_base_is_a_number_above_zero(value: float):
    assert refused(rope_theta=value)["rope_theta"].startswith(f"got {value}, expected")
    assert "rope_theta" in refused(rope_parameters={"rope_theta": value})


def test_key_heads_must_divide_the_query_heads():
    expected = "got 3, expected a divisor of num_attention_heads (8)"
    assert refused(num_attention_heads=8, num_key_value_heads=3)["num_key_value_heads"] == expected


def test_an_odd_head_cannot_be_rotated_but_biased():
    assert "even" in refused(head_dim=15)["head_dim"]
    assert GemmaConfig.from_dict({"head_dim": 15, "alibi": True}).head_dim == 15


def test_switches_of_paddlenlp_are_read_and_written_only_when_they_are_on():
    switches = {"alibi": True, "fuse_attention_qkv": True, "fuse_attention_ffn": True}
    assert switches.items() <= GemmaConfig.from_dict(switches).to_dict().items()
    off = dict.fromkeys(switches, False)
    assert not GemmaConfig.from_dict(off).to_dict().keys() & switches.keys()
    assert refused(alibi="yes")["alibi"] == "got 'yes', expected true or false"


def test_dropout_of_attention_is_a_share():
    assert GemmaConfig.from_dict({"attention_dropout": 0.1}).attention_dropout == 0.1
    assert refused(attention_dropout=1)["attention_dropout"] == "got 1, expected a share below 1"


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
        {"rope_scaling_type": "linear"},
    ],
)
def test_stretched_positions_are_refused_rather_than_ignored(fields: dict):
    assert "rope_scaling" in refused(**fields)
