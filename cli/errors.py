"""What a command can end with: one exit code for each kind of failure, one exception to carry it."""

from collections.abc import Mapping, Sequence

FAILED = 1  # the job failed, or the server refused for a reason other than the request's content
INVALID = 2  # the request, the file or the command line is wrong
AWAY = 3  # nothing answers at the server's address


class CliError(Exception):
    """A failure that is shown as one sentence, and perhaps a table of problems, without a traceback.

    `problems` are the entries of an RFC 9457 answer: mappings with `loc`, `msg` and `hint`.
    """

    def __init__(
        self, message: str, exit_code: int = FAILED, problems: Sequence[Mapping[str, object]] = ()
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.problems = tuple(problems)


class ServerAway(CliError):  # noqa: N818  (named for what happened, as the message reads)
    """No answer from the server."""

    def __init__(self, url: str, cause: object) -> None:
        super().__init__(
            f"No Regatta server answers at {url} ({cause}). "
            "Start one with `regatta up`, or set REGATTA_URL to where it runs.",
            AWAY,
        )


class ApiError(CliError):
    """An answer of the server that is not a success."""

    def __init__(self, status: int, problem: Mapping[str, object]) -> None:
        self.status = status
        self.problem = problem
        title = str(problem.get("title") or f"HTTP {status}")
        detail = str(problem.get("detail") or "")
        errors = problem.get("errors")
        # With a table of problems to follow, the detail would say the first of them twice.
        message = f"{title}: {detail}" if detail and not errors else title
        entries = errors if isinstance(errors, list) else []
        exit_code = INVALID if status in (400, 413, 415, 422) else FAILED
        super().__init__(message, exit_code, [entry for entry in entries if isinstance(entry, Mapping)])
