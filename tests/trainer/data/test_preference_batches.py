import numpy as np
import pytest

from trainer.data.packing import Pack, pack
from trainer.data.preference import PreferenceExample, Response
from trainer.data.preference_batches import PreferenceCollator
from trainer.data.sft import IGNORE

ROOM = 100


def pair(prompt: list[int], chosen: list[int], rejected: list[int]) -> PreferenceExample:
    responses = tuple(Response.of(prompt[-1], ids, ROOM) for ids in (chosen, rejected))
    return PreferenceExample(np.array(prompt[:-1], dtype=np.int32), responses)


def judged(
    prompt: list[int], response: list[int], desirable: bool, other: list[int] | None
) -> PreferenceExample:
    shared = np.array(prompt[:-1], dtype=np.int32)
    own = (Response.of(prompt[-1], response, ROOM),)
    if other is None:
        return PreferenceExample(shared, own, desirable)
    mismatched = PreferenceExample(shared, (Response.of(prompt[-1], other, ROOM),))
    return PreferenceExample(shared, own, desirable, mismatched)


def test_a_response_begins_with_the_last_prompt_token_and_every_position_has_a_label() -> None:
    response = Response.of(9, [4, 5, 1], ROOM)
    assert (response.input_ids.tolist(), response.labels.tolist()) == ([9, 4, 5], [4, 5, 1])
    assert (response.length, response.cut) == (3, False)


def test_a_response_that_does_not_fit_is_cut_and_ends_without_eos() -> None:
    response = Response.of(9, [4, 5, 1], 2)
    assert (response.input_ids.tolist(), response.labels.tolist()) == ([9, 4], [4, 5])
    assert response.cut


def test_a_pair_takes_its_prompt_once_and_both_responses_go_on_where_it_ends() -> None:
    example = pair([2, 7, 9], [4, 1], [5, 6, 1])
    assert (example.length, example.label_tokens, example.parts) == (7, 5, (example,))
    batch = PreferenceCollator(pad_id=0, side="left", length=8)([example])
    assert batch.input_ids.tolist() == [[0, 2, 7, 9, 4, 9, 5, 6]]
    assert batch.labels.tolist() == [[IGNORE, IGNORE, IGNORE, 4, 1, 5, 6, 1]]
    assert batch.documents.tolist() == [[0, 1, 1, 1, 1, 1, 1, 1]]
    assert batch.position_ids.tolist() == [[0, 0, 1, 2, 3, 2, 3, 4]]
    assert batch.branches.tolist() == [[0, 0, 0, 1, 1, 2, 2, 2]]
    assert batch.responses.tolist() == [[0, 0, 0, 1, 1, 2, 2, 2]]
    assert batch.response_tokens.tolist() == [2, 3]
    assert (batch.desirable, batch.mismatched) == (None, None)
    assert (batch.rows, batch.examples, batch.tokens, batch.label_tokens) == (1, 1, 7, 5)


def test_a_prompt_of_one_token_has_no_part_of_its_own() -> None:
    batch = PreferenceCollator(pad_id=0, side="right")([pair([2], [4, 1], [5, 1])])
    assert batch.input_ids.tolist() == [[2, 4, 2, 5]]
    assert batch.position_ids.tolist() == [[0, 1, 0, 1]]
    assert batch.branches.tolist() == [[1, 1, 2, 2]]


def test_responses_are_numbered_over_all_rows_in_order() -> None:
    one, two, three = (pair([2, token], [token, 1], [3, 1]) for token in (7, 8, 9))
    batch = PreferenceCollator(pad_id=0, side="right", length=12)([Pack((one, two)), Pack((three,))])
    assert batch.documents.tolist() == [[1] * 5 + [2] * 5 + [0] * 2, [1] * 5 + [0] * 7]
    assert batch.responses.tolist() == [
        [0, 1, 1, 2, 2, 0, 3, 3, 4, 4, 0, 0],
        [0, 5, 5, 6, 6, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert batch.branches.max() == 2
    assert (batch.rows, batch.examples) == (2, 3)
    assert len(batch.response_tokens) == 6


def test_token_0_may_be_a_label() -> None:
    batch = PreferenceCollator(pad_id=0, side="left")([pair([2, 7], [0, 1], [5, 1])])
    assert batch.labels.tolist() == [[IGNORE, 0, 1, 5, 1]]
    assert batch.label_tokens == 4


def test_judged_responses_come_with_their_judgement_and_a_batch_of_mismatched_ones() -> None:
    rows = [Pack((judged([2, 7], [4, 1], True, [6, 6, 1]), judged([2, 8], [6, 6, 1], False, [4, 1])))]
    batch = PreferenceCollator(pad_id=0, side="right", length=10)(rows)
    assert batch.desirable is not None
    assert batch.desirable.tolist() == [True, False]
    assert batch.responses.tolist() == [[0, 1, 1, 0, 2, 2, 2, 0, 0, 0]]
    other = batch.mismatched
    assert other is not None
    assert other.input_ids.tolist() == [[2, 7, 6, 6, 2, 8, 4, 0, 0, 0]]
    assert other.labels.tolist() == [[IGNORE, 6, 6, 1, IGNORE, 4, 1, IGNORE, IGNORE, IGNORE]]
    assert other.responses.tolist() == [[0, 1, 1, 1, 0, 2, 2, 0, 0, 0]]
    assert (other.examples, other.mismatched, other.desirable) == (2, None, None)


@pytest.mark.parametrize("length", [None, 8])
def test_mismatched_responses_that_are_longer_get_more_rows_not_longer_ones(length: int | None) -> None:
    long = [5, 5, 5, 5, 5, 5, 1]
    rows = list(pack([judged([2, n], [4, 1], True, long) for n in (7, 8)], 8, greedy=False))
    batch = PreferenceCollator(pad_id=0, side="left", length=length)(rows)
    assert batch.mismatched is not None
    assert (batch.rows, batch.mismatched.rows, batch.mismatched.input_ids.shape[1]) == (1, 2, 8)
    assert batch.mismatched.examples == batch.examples
    assert batch.mismatched.response_tokens.tolist() == [7, 7]
