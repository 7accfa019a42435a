"""The commands that run the service, whole or part by part."""

from pathlib import Path
from typing import Annotated

import typer

SERVICE_PANEL = "Run the service"

Host = Annotated[
    str | None, typer.Option(help="Address to listen on.", show_default="REGATTA_API_HOST or 127.0.0.1")
]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port; 0: any free one.", show_default="REGATTA_API_PORT or 8000"),
]
ModelRoots = Annotated[
    list[Path] | None,
    typer.Option(
        exists=True,
        file_okay=False,
        help="A folder that models may be read from; may be repeated.",
        show_default="REGATTA_MODEL_ROOTS or models in the data directory",
    ),
]
DataRoots = Annotated[
    list[Path] | None,
    typer.Option(
        exists=True,
        file_okay=False,
        help="A folder that data sets may be read from; may be repeated.",
        show_default="REGATTA_DATA_ROOTS or datasets in the data directory",
    ),
]


def add_to(app: typer.Typer) -> None:
    for command in (demo, up, migrate, api, scheduler, worker):
        app.command(rich_help_panel=SERVICE_PANEL)(command)


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the service running until Ctrl-C, and the data in place.")
    ] = False,
    model_dir: Annotated[Path | None, typer.Option(help="Keep the trained model in this new folder.")] = None,
) -> None:
    """Train a tiny model through the service on this machine, and ask it questions."""
    from cli.demo.run import run_demo

    run_demo(keep=keep, model_dir=model_dir)


def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of all data.", show_default="REGATTA_DATA_DIR or ./regatta-data"),
    ] = None,
    host: Host = None,
    port: Port = None,
    devices: Annotated[
        str | None,
        typer.Option(
            help="Devices of this host, for example cpu:2 or gpu:8.", show_default="REGATTA_DEVICES or cpu:1"
        ),
    ] = None,
    model_root: ModelRoots = None,
    data_root: DataRoots = None,
) -> None:
    """Run the whole service on this machine: API, scheduler, worker and their broker."""
    from cli.up import Options, run_up

    run_up(Options(data_dir, host, port, devices, tuple(model_root or ()), tuple(data_root or ())))


def migrate() -> None:
    """Bring the database (REGATTA_DATABASE_URL) to this version's tables."""
    from cli.database import migrate_database
    from cli.settings import read_settings

    migrate_database(read_settings().database_url)
    print("The database is up to date.")


def api(host: Host = None, port: Port = None) -> None:
    """Run the HTTP server alone."""
    from api.server import run
    from cli.settings import read_settings, safe_address

    settings = read_settings()
    safe_address(settings, host)
    run(settings, host=host, port=port)


def scheduler() -> None:
    """Run the scheduler alone: it places waiting jobs on hosts."""
    from cli.database import check_database
    from cli.settings import read_settings
    from worker.scheduler import run_scheduler

    settings = read_settings()
    check_database(settings.database_url)
    run_scheduler(settings)


def worker(
    stop_jobs: Annotated[
        bool,
        typer.Option(
            "--stop-jobs",
            help="At the end stop its jobs, too, with a checkpoint: for a container, which takes them along.",
        ),
    ] = False,
) -> None:
    """Run the worker of this host alone: it starts and watches trainers."""
    from cli.database import check_database
    from cli.runners import stop_jobs_of
    from cli.settings import check_devices, read_settings
    from worker.main import run_worker

    settings = read_settings()
    check_devices(settings)
    check_database(settings.database_url)
    run_worker(settings)
    if stop_jobs:
        stop_jobs_of(settings)
