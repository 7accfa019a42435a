import argparse
from collections.abc import Callable
from typing import Any

import pytest

from trainer.config import FinetuneConfig
from trainer.config.problems import ConfigError
from trainer.launcher.gang import CPU, Gang, add_gang_options, gang_of

MakeConfig = Callable[..., FinetuneConfig]


@pytest.fixture
def gang(make_config: MakeConfig) -> Callable[..., Gang]:
    def make(words: str, environment: dict[str, str] | None = None, **config: Any) -> Gang:
        parser = argparse.ArgumentParser()
        add_gang_options(parser)
        return gang_of(parser.parse_args(words.split()), make_config(**config), environment or {})

    return make


MakeGang = Callable[..., Gang]


def test_without_options_a_run_has_one_process(gang: MakeGang):
    assert gang("") == Gang(1)


def test_without_options_a_config_gets_the_processes_that_it_needs(gang: MakeGang):
    assert gang("", tensor_parallel_degree=2).nproc == 2
    assert gang("--nnodes 2 --master 10.0.0.1:4000", tensor_parallel_degree=2).nproc == 1


def test_more_processes_than_needed_become_data_parallel(gang: MakeGang):
    assert gang("--nproc 4", tensor_parallel_degree=2).world == 4


def test_named_gpus_are_the_number_of_processes(gang: MakeGang):
    assert gang("--devices 4,5") == Gang(2, devices="4,5")


def test_a_device_that_is_the_cpu_or_has_no_gpu_to_see_is_the_cpu(gang: MakeGang):
    assert gang("--nproc 2", device="cpu").devices == CPU
    assert gang("--nproc 2", {"CUDA_VISIBLE_DEVICES": ""}).devices == CPU
    assert gang("--nproc 2 --devices cpu").devices == CPU
    assert gang("--nproc 2", {"CUDA_VISIBLE_DEVICES": "0,1"}).devices == "0,1"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--nproc 3", "tensor_parallel_degree 2 = 2 devices"),
        ("--nproc 0", "--nproc: got 0"),
        ("--nproc 4 --devices 0,1", "got 4 processes, but 2 GPUs are visible: 0,1"),
        ("--nproc 2 --nnodes 2", "--master: not given"),
        ("--nproc 2 --nnodes 2 --master host", "--master: got host, expected IP:PORT"),
        ("--nproc 2 --rank 1", "--rank: got 1, expected 0 to 0"),
    ],
)
def test_what_cannot_be_is_refused_with_the_numbers(gang: MakeGang, words: str, told: str):
    with pytest.raises(ConfigError, match=told):
        gang(words, tensor_parallel_degree=2)
