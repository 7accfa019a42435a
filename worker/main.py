"""The worker of a host: a Celery worker that listens on the host's own queue and starts runners."""

import logging
import threading
import warnings

from celery import Celery, signals
from celery.apps.worker import Worker
from celery.platforms import SecurityWarning

from store.attempts import host_queue
from store.database import Database
from store.logformat import configure_logging
from store.settings import Settings
from worker.celery_app import LAUNCH, make_app
from worker.cleaning import ArtifactSweeper
from worker.devices import DeviceError
from worker.host import HostPresence
from worker.launch import Launcher
from worker.runners import Runners
from worker.strays import kill_orphaned_trainers

log = logging.getLogger(__name__)


def run_worker(settings: Settings) -> None:
    """Serve this host until SIGTERM or SIGINT; the jobs that run here go on without the worker.

    Raises: SystemExit when the host does not have the devices that the settings name.
    """
    configure_logging(settings.log_format)
    logging.getLogger("celery").setLevel(logging.WARNING)
    # Celery warns of root because of pickled messages; this worker accepts JSON alone
    warnings.simplefilter("ignore", SecurityWarning)
    database = Database(settings.database_url)
    try:
        presence = HostPresence(settings, database)
    except DeviceError as error:
        raise SystemExit(str(error)) from error
    leave = threading.Event()

    def shut_down(**_signal: object) -> None:
        leave.set()
        presence.withdraw()

    for pid in kill_orphaned_trainers(settings.work_dir):
        log.warning("killed process %d: the runner it belonged to is gone", pid)
    app = make_app(settings)
    runners = Runners(settings, ahead=True)
    launcher = Launcher(settings, database, leave, runners)
    app.task(name=LAUNCH, shared=False)(launcher.launch)
    signals.worker_shutting_down.connect(shut_down)
    presence.start()
    ArtifactSweeper(settings, database).start()
    try:
        _celery_worker(app, settings.host_name, presence.slots).start()
    finally:
        signals.worker_shutting_down.disconnect(shut_down)
        runners.close()
        database.dispose()


def _celery_worker(app: Celery, host: str, slots: int) -> Worker:
    return app.Worker(
        hostname=f"worker@{host}",
        queues=[host_queue(host)],
        pool="threads",
        # a thread only waits for its runner, and some wind down while their devices are taken again
        concurrency=2 * slots + 16,
        quiet=True,
        loglevel="INFO",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
