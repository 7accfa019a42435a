"""The command group: expected failures of all commands are shown in one way and end with their exit code."""

from typing import TYPE_CHECKING, Any

from typer import Exit
from typer.core import TyperGroup

from cli.commands.examples import epilog

if TYPE_CHECKING:
    from cli.errors import CliError


class Commands(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        group = f"{self.name} " if self.name else ""
        for name, command in self.commands.items():
            command.epilog = epilog(group + name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            expected = expected_failure(error)
            if expected is None:
                raise
            from cli.output import print_error

            print_error(expected)
            raise Exit(expected.exit_code) from error


def expected_failure(error: Exception) -> "CliError | None":
    """What to show instead of a traceback; None for an error that nobody has foreseen."""
    from cli.errors import CliError

    if isinstance(error, CliError):
        return error
    from trainer.config.problems import RegattaError

    if isinstance(error, RegattaError):
        count = len(error.problems)
        problems = [problem.as_dict() for problem in error.problems]
        return CliError("1 problem:" if count == 1 else f"{count} problems:", error.exit_code, problems)
    return None
