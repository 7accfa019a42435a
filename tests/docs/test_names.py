"""Files and names of the code that the pages mention are there."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ROOMS = "api|benchmarks|cli|docker|migrations|regatta_client|store|tests|trainer|worker"
NO_CODE = {"api.log.1"}
"""What looks like a name of the code and is a file that the service writes."""
PAGES = sorted(path for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])


def mentioned(text: str, separator: str) -> set[str]:
    """What stands between backticks and begins with a room's name: paths, or dotted names."""
    return set(re.findall(rf"`((?:{ROOMS}){separator}[\w./-]+)`", text))


def names_in(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What a module or class defines or imports, by name."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name): node for alias in node.names}
    return found


def is_there(dotted: str) -> bool:
    """Whether a name leads to a module, or to something that a module defines."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        place = REPOSITORY.joinpath(*parts[:count])
        module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if not module.is_file():
            continue
        body = ast.parse(module.read_text(encoding="utf-8")).body
        for name in parts[count:]:
            node = names_in(body).get(name)
            if node is None:
                return False
            body = node.body if isinstance(node, ast.ClassDef) else []
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {path for path in mentioned(text, "/") if not (REPOSITORY / path.rstrip("/")).exists()} == set()
    names = {name.rstrip(".") for name in mentioned(text, r"\.")} - NO_CODE
    assert {name for name in names if "/" not in name and not is_there(name)} == set()


def test_a_name_that_is_not_there_is_found() -> None:
    assert is_there("trainer.models.registry.register")
    assert not is_there("trainer.models.registry.unregister")
    assert not is_there("trainer.nothing.at_all")
