"""Log files that are kept small while they are written."""

from pathlib import Path

from cli.rotation import numbered, rotate


def test_a_log_moves_to_numbered_files_while_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    with log.open("ab", buffering=0) as writer:
        for round_ in range(5):
            assert not rotate(log, most_bytes=5, kept=3)
            writer.write(f"line {round_}\n".encode())
            assert rotate(log, most_bytes=5, kept=3)
            assert log.stat().st_size == 0
        writer.write(b"now\n")
    assert log.read_text() == "now\n"
    assert [numbered(log, number).read_text() for number in (1, 2, 3)] == ["line 4\n", "line 3\n", "line 2\n"]
    assert not numbered(log, 4).exists()


def test_a_log_that_is_small_or_not_there_stays(tmp_path: Path) -> None:
    assert not rotate(tmp_path / "none.log")
    (tmp_path / "small.log").write_text("x")
    assert not rotate(tmp_path / "small.log")
    assert [path.name for path in tmp_path.iterdir()] == ["small.log"]
