"""What a worker does for an attempt whose runner has died: deliver what it left, and report its end at once.

Without it the attempt would end with its lease. It lets go in time before that, so that the files of an
attempt are never read by two.
"""

import logging
import signal

from store.attempts import Renewal, renew
from store.reasons import Reason
from store.reports import Outcome, finish
from store.states import Status
from store.wake import SCHEDULER, job_channel, wake
from worker.clock import boottime
from worker.delivery import Delivery, reported_offset
from worker.lease import Lease
from worker.masking import Mask
from worker.services import Services
from worker.spec import Spec
from worker.strays import end_processes_of

log = logging.getLogger(__name__)


def conclude(services: Services, spec: Spec, mask: Mask, exit_code: int) -> None:
    """End what still runs of the attempt and speak for its runner, which has ended with this code (negative:
    by a signal). A result that the trainer had come to makes the job succeed, else it is tried again.

    When the database does not answer, the end of the lease decides.
    """
    end_processes_of(spec.folder)

    def prolong() -> Renewal:
        with services.database.transaction() as session:
            return renew(session, spec.job_id, spec.attempt, spec.owner, ttl_s=spec.lease_ttl_s)

    lease = Lease(prolong, lambda: None, spec.heartbeat_s, boottime())
    if not lease.renew_now() or lease.fenced.is_set():
        return
    lease.start()
    try:
        _deliver(services, spec, mask, lease)
        outcome = _outcome(exit_code)
        policy = services.settings.retry_policy
        with services.database.transaction() as session:
            finish(session, spec.job_id, spec.attempt, spec.owner, outcome, policy)
    except Exception:
        log.exception("the end of job %s could not be reported; its lease ends it", spec.job_id)
    finally:
        lease.end()
    wake(services.settings.broker_url, SCHEDULER, job_channel(spec.job_id))


def _deliver(services: Services, spec: Spec, mask: Mask, lease: Lease) -> None:
    def give_up() -> bool:
        return lease.fenced.is_set() or boottime() > lease.renewed_at + spec.lease_ttl_s / 2

    offset = reported_offset(services, spec, spec.folder)
    delivery = Delivery(services, spec, spec.folder, offset, lease.fenced.set, mask)
    delivery.start()
    delivery.drain(give_up)


def _outcome(exit_code: int) -> Outcome:
    if exit_code >= 0:
        message = f"The runner of the job, which watches its trainer, ended with code {exit_code}."
        return Outcome(Status.failed, Reason.host_failed, message)
    name = signal.Signals(-exit_code).name
    message = (
        f"The runner of the job, which watches its trainer, was killed by {name}, and the trainer with it."
    )
    return Outcome(Status.failed, Reason.trainer_killed, message, signal=name)
