"""Projects and what they may use."""

import pytest

from store.database import Database
from store.errors import Conflict, NotFound
from store.projects import create_project, get_project, list_projects, set_limits


def test_projects_are_listed_by_name_beside_the_one_that_is_always_there(database: Database) -> None:
    with database.transaction() as session:
        create_project(session, "zebra", {"most_running": 2}, actor="local")
        create_project(session, "ant")
    with database.reading() as session:
        assert [project.name for project in list_projects(session)] == ["ant", "default", "zebra"]
        assert get_project(session, "zebra").most_running == 2
        assert get_project(session, "zebra").most_queued is None


def test_a_name_is_taken_once(database: Database) -> None:
    with database.transaction() as session, pytest.raises(Conflict, match="'default' already"):
        create_project(session, "default")


def test_limits_are_changed_one_by_one_and_lifted(database: Database) -> None:
    with database.transaction() as session:
        set_limits(session, "default", {"most_queued": 5, "most_devices": 4})
        set_limits(session, "default", {"most_queued": None, "most_running": 0})
    with database.reading() as session:
        project = get_project(session, "default")
        assert (project.most_queued, project.most_running, project.most_devices) == (None, 0, 4)


def test_an_unknown_project_and_an_unknown_limit_are_refused(database: Database) -> None:
    with database.transaction() as session:
        with pytest.raises(NotFound, match="no project 'nowhere'"):
            set_limits(session, "nowhere", {"most_queued": 1})
        with pytest.raises(ValueError, match="most_cats"):
            set_limits(session, "default", {"most_cats": 1})
