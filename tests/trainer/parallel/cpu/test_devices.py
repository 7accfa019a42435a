"""Fleet's own wrappers, which ask for a GPU, train on CPU as one process does."""

from typing import Any

import numpy as np
import paddle
import pytest
from paddle import Tensor, nn
from paddle.distributed import fleet as paddle_fleet
from paddle.distributed.fleet.meta_parallel.parallel_layers.pp_layers import LayerDesc, PipelineLayer
from paddle.distributed.fleet.utils import mix_precision_utils
from paddle.distributed.sharding import group_sharded_parallel

from tests.ranks import run_ranks
from trainer.parallel.layout import Layout, start
from trainer.parallel.topology import Topology

FLEET: Any = paddle_fleet

WIDTH, ROWS, STEPS = 8, 4, 3
SMALL_SEGMENT = 16  # elements from which stage 3 slices a parameter: all matrices here


class Block(nn.Layer):
    """A layer whose weights are the same wherever it is built."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        weight = np.random.default_rng(number).normal(0.0, 0.5, (WIDTH, WIDTH))
        self.linear.weight.set_value(weight.astype("float32"))

    def forward(self, x: Tensor) -> Tensor:
        return paddle.tanh(self.linear(x))


def _batch(step: int) -> np.ndarray:
    return np.random.default_rng(100 + step).normal(0.0, 1.0, (ROWS, WIDTH)).astype("float32")


def _loss(x: Tensor, _: Any = None) -> Tensor:
    return (x**2).mean()


def _plain(model: nn.Layer) -> Any:
    return paddle.optimizer.Adam(0.05, parameters=model.parameters())


def _alone() -> list[float]:
    model = nn.Sequential(Block(0), Block(1))
    optimizer = _plain(model)
    losses = []
    for step in range(STEPS):
        loss = _loss(model(paddle.to_tensor(_batch(step))))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    return losses


def _sharded(level: Any) -> list[float]:
    split = level == "split"
    stage: Any = {"os_g": 2, "p_g_os": 3}.get(level, 1)
    layout = start(Topology(sharding=2, stage=stage, split_param=split), seed=1)
    model: Any = nn.Sequential(Block(0), Block(1))
    optimizer: Any = _plain(model)
    if stage > 1:
        model, optimizer, _ = group_sharded_parallel(
            model, optimizer, level, group=layout.sharding_group, segment_size=SMALL_SEGMENT
        )
    else:
        if split:  # Paddle's split parameters are right with float32 main gradients only
            mix_precision_utils.MixPrecisionLayer(model, dtype="bfloat16")
            optimizer = mix_precision_utils.MixPrecisionOptimizer(optimizer)
        model, optimizer = FLEET.distributed_model(model), FLEET.distributed_optimizer(optimizer)
    return _losses_of_shares(layout, model, optimizer)


def _losses_of_shares(layout: Layout, model: Any, optimizer: Any) -> list[float]:
    losses = []
    for step in range(STEPS):
        share = np.split(_batch(step), layout.topology.data_ways)[layout.data_rank]
        loss = _loss(model(paddle.to_tensor(share)))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    return losses


def _pipeline(recompute: bool) -> list[float]:
    layout = start(Topology(pipeline=2), seed=1)
    layout.set_schedule(2, ROWS // 2)
    model: Any = PipelineLayer(
        [LayerDesc(Block, 0), LayerDesc(Block, 1)],
        topology=layout.hcg.topology(),
        loss_fn=_loss,
        recompute_interval=1 if recompute else 0,
        recompute_ctx={
            "mp_group": layout.hcg.get_model_parallel_group(),
            "offload": False,
            "partition": False,
        },
    )
    optimizer = FLEET.distributed_optimizer(_plain(model))
    model = FLEET.distributed_model(model)
    losses = []
    for step in range(STEPS):
        x = paddle.to_tensor(_batch(step))
        losses.append(float(model.train_batch([x, x], optimizer).numpy().reshape([])))
    return losses


@pytest.mark.parametrize("level", ["os", "split", "os_g", "p_g_os"])
def test_every_stage_of_sharding_trains_as_one_process(level: str) -> None:
    first, second = run_ranks(2, _sharded, level)
    np.testing.assert_allclose(np.add(first, second) / 2, _alone(), rtol=1e-5)


@pytest.mark.parametrize("recompute", [False, True])
def test_a_pipeline_trains_as_one_process(recompute: bool) -> None:
    for losses in run_ranks(2, _pipeline, recompute):
        np.testing.assert_allclose(losses, _alone(), rtol=1e-5)
