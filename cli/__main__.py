"""`python -m cli` is the `regatta` command."""

from cli.main import app

app(prog_name="regatta")
