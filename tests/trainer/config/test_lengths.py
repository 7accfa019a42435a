"""Histograms of lengths."""

from trainer.config.lengths import EDGES, Lengths


def test_an_edge_belongs_to_the_bin_that_it_ends() -> None:
    lengths = Lengths()
    for length in (0, 1, 16, 17, 32, 33):
        lengths.add(length)
    assert lengths.as_dict() == {
        "total": 99,
        "mean": 16.5,
        "max": 33,
        "histogram": [
            {"up_to": 16, "examples": 3},
            {"up_to": 32, "examples": 2},
            {"up_to": 64, "examples": 1},
        ],
    }


def test_what_is_longer_than_all_edges_has_a_bin() -> None:
    lengths = Lengths()
    for length in (EDGES[-1], EDGES[-1] + 1, 10**9):
        lengths.add(length)
    bins = lengths.as_dict()["histogram"]
    assert len(bins) == len(EDGES) + 1
    assert bins[-2:] == [{"up_to": EDGES[-1], "examples": 1}, {"up_to": None, "examples": 2}]


def test_nothing_has_no_length() -> None:
    assert Lengths().as_dict() == {
        "total": 0,
        "mean": 0.0,
        "max": 0,
        "histogram": [{"up_to": 16, "examples": 0}],
    }
