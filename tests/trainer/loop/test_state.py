import json

from trainer.loop.state import TrainState


def test_an_epoch_ends_with_its_last_example() -> None:
    state = TrainState()
    state.begin_epoch(5, 2, drop_last=False)
    for _ in range(2):
        state.advance(2, tokens=10)
    assert (state.epoch, state.consumed, state.epochs) == (0, 4, 0.8)
    state.advance(1, tokens=10, ends_epoch=True)
    assert (state.epoch, state.consumed, state.epochs) == (1, 0, 1.0)
    assert state.at_epoch_end
    assert state.tokens == 30


def test_a_dropped_last_batch_does_not_keep_an_epoch_open() -> None:
    state = TrainState()
    state.begin_epoch(5, 2, drop_last=True)
    state.advance(4, tokens=0, ends_epoch=True)
    assert state.at_epoch_end


def test_an_epoch_with_nothing_left_gives_way_to_the_next() -> None:
    state = TrainState(step=4, epoch=2, consumed=8)
    state.begin_epoch(8, 2, drop_last=False)
    assert (state.epoch, state.consumed, state.epoch_rows) == (3, 0, 8)
    state = TrainState(step=4, epoch=2, consumed=6)
    state.begin_epoch(8, 4, drop_last=True)
    assert (state.epoch, state.consumed, state.epoch_rows) == (3, 0, 8)


def test_the_stored_form_gives_the_state_back() -> None:
    state = TrainState(
        step=5,
        schedule_step=4,
        epoch=1,
        consumed=3,
        epoch_rows=9,
        tokens=77,
        padding=3,
        loss_sum=1 / 3,
        interval_loss=0.1,
        interval_steps=2,
        interval_measures={"rewards/chosen": (0.5, 4.0)},
        skipped=1,
        best_metric=0.25,
        best_checkpoint="checkpoint-4",
        resumed_from="/elsewhere/checkpoint-2",
        settings={"seed": 1},
        loss_scaling={"scale": [1024.0]},
        log_history=[{"step": 4, "eval_loss": 0.1 + 0.2}],
    )
    assert TrainState.from_dict(json.loads(json.dumps(state.as_dict(10, 2.0)))) == state


def test_an_evaluation_is_found_by_its_step() -> None:
    entry = {"step": 2, "eval_loss": 1.0}
    state = TrainState(log_history=[{"step": 2, "loss": 1.0}, entry, {"step": 4, "loss": 1.0}])
    assert state.evaluation(2) == entry
    assert state.evaluation(4) is None
