from cli.plot import text_plot


def test_a_falling_curve_goes_from_the_top_left_to_the_bottom_right() -> None:
    assert text_plot([4.0, 3.0, 2.0, 1.0], height=4) == [
        "   4.000 | *",
        "   3.000 |  *",
        "   2.000 |   *",
        "   1.000 |    *",
    ]


def test_more_values_than_columns_are_averaged() -> None:
    assert text_plot([4.0, 2.0, 1.0, 1.0], width=2, height=3) == [
        "   3.000 | *",
        "   2.000 |",
        "   1.000 |  *",
    ]


def test_equal_values_are_a_flat_line() -> None:
    assert text_plot([2.0, 2.0], height=2) == ["   3.000 |", "   2.000 | **"]


def test_no_values_are_no_rows() -> None:
    assert text_plot([]) == []
