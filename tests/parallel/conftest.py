"""One matrix for the session, and a table of what it found at the end."""

import pytest

from tests.parallel.cases import Combination
from tests.parallel.matrix import Matrix
from tests.parallel.table import lines

FOUND = pytest.StashKey[Matrix]()


@pytest.fixture(scope="session")
def matrix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    asked = [call.params.get("combination") for call in calls if call is not None]
    wanted = [one for one in asked if isinstance(one, Combination)]
    found = Matrix(tmp_path_factory.mktemp("matrix"), wanted)
    request.config.stash[FOUND] = found
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    matrix = terminalreporter.config.stash.get(FOUND, None)
    if matrix is not None and matrix.differences:
        terminalreporter.section("parallel layouts, compared with one process")
        for line in lines(matrix):
            terminalreporter.write_line(line)
