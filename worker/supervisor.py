"""The life of an attempt around its trainer: recover, watch, stop, deliver, and report one outcome."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from store.attempts import Renewal, release, renew
from store.completion import DONE, is_done
from store.logformat import bind, configure_logging
from store.reasons import Reason
from store.reports import Outcome, finish
from store.settings import get_settings
from store.states import Status
from store.wake import SCHEDULER, Listener, job_channel, wake
from worker.clock import boottime
from worker.deadline import Deadline
from worker.delivery import Delivery, reported_offset
from worker.evidence import last_lines
from worker.gang import Gathering, NotMet, Unwanted, restore
from worker.inputs import MissingInput, fetch_inputs
from worker.lease import Lease
from worker.memory import oom_kills
from worker.outcome import Ending, Stop, decide
from worker.process import Termination, Trainer, TrainerStart
from worker.pump import Fenced
from worker.recovery import begin_afresh, go_on_from_checkpoint, restore_checkpoint, unfinished_attempts
from worker.services import Services
from worker.spec import Spec
from worker.strays import end_processes_of
from worker.wakeup import Wakeup

LOOK_S = 1.0
RETRY_S = 1.0
LAST_WORDS_S = 10.0
"""So long a host of several whose attempt is over delivers the lines that its trainer wrote."""
LISTEN_S = 5.0
"""An absent broker is looked for so often."""

T = TypeVar("T")

log = logging.getLogger(__name__)


def supervise(
    spec: Spec, start: TrainerStart, deadline: Deadline, wakeup: Wakeup, termination: Termination
) -> bool:
    """See an attempt through to its end; False when it was lost to another one or could not be reported."""
    configure_logging(get_settings().log_format)
    bind(job_id=spec.job_id, attempt=spec.attempt)
    return Supervisor(spec, start, deadline, wakeup, termination, Services.connect(get_settings())).run()


class Supervisor:
    """Owns the lease, the trainer and the reports of one attempt."""

    def __init__(
        self,
        spec: Spec,
        start: TrainerStart,
        deadline: Deadline,
        wakeup: Wakeup,
        termination: Termination,
        services: Services,
    ) -> None:
        self._spec = spec
        self._start = start
        self._deadline = deadline
        self._wakeup = wakeup
        self._termination = termination
        self._services = services
        self._lease = Lease(self._renew, wakeup.set, spec.heartbeat_s, spec.renewed_at)
        self._started_at = boottime()
        self._gathering = Gathering(services, spec, self._answer, self._is_unwanted)
        self._stop: Stop | None = None
        self._delivery: Delivery | None = None
        self._words: tuple[str, ...] = ()
        self._together = self._apart = False
        self._told_at = 0.0
        self._killed = False

    def run(self) -> bool:
        """See the attempt through; True when its outcome was reported."""
        self._lease.start()
        threading.Thread(target=self._listen, name="hints", daemon=True).start()
        try:
            if self._start.trainer is None and self._start.failure is None:
                self._recover()
                if not self._prepare():
                    return self._report(Outcome(Status.succeeded, Reason.completed, DONE))
            delivery = self._delivery = Delivery(
                self._services, self._spec, self._spec.folder, 0, self._fence, self._start.mask
            )
            delivery.start()
            exit_code = self._run_trainer()
            delivered = delivery.drain(self._patience())
            outcome = self._outcome(exit_code, delivery, delivered)
            return outcome is not None and self._report(outcome)
        except MissingInput as error:
            return self._report(Outcome(Status.failed, Reason.artifacts_unavailable, str(error)))
        except NotMet as error:
            return self._report(Outcome(Status.failed, Reason.start_timeout, str(error)))
        except Fenced:
            log.warning("attempt %d is over: nothing more is reported", self._spec.attempt)
            if self._delivery is not None and self._spec.hosts > 1:
                self._delivery.drain_log(LAST_WORDS_S)
            self._let_go()
            return False
        finally:
            self._gathering.close()
            self._lease.end()

    def _recover(self) -> None:
        """Finish what earlier attempts left on this host."""
        begin_afresh(self._spec)
        for folder in unfinished_attempts(self._spec):
            log.info("attempt %d was not finished: delivering what it left", folder.number)
            end_processes_of(folder)
            offset = self._answer(lambda folder=folder: reported_offset(self._services, self._spec, folder))
            delivery = Delivery(self._services, self._spec, folder, offset, self._fence, self._start.mask)
            delivery.start()
            if not delivery.drain(self._patience()):
                self._raise_if_fenced()
                log.error("attempt %d could not be delivered", folder.number)

    def _is_done(self) -> bool:
        """Whether an earlier attempt had come to its result, and only the news of that was lost."""
        with self._services.database.reading() as session:
            return is_done(session, self._spec.job_id)

    def _prepare(self) -> bool:
        """Have all that the trainer needs in the workspace, and of several hosts all of them ready.

        Returns: False when nothing is left to train.
        Raises: MissingInput; NotMet when other hosts did not come.
        """
        spec, services = self._spec, self._services
        if spec.hosts == 1:
            if self._answer(self._is_done):
                return False
            self._answer(lambda: restore_checkpoint(spec, services.database, services.artifacts))
            go_on_from_checkpoint(spec)
            self._fetch_inputs()
            return True
        try:
            name = self._gathering.checkpoint()
            if self._answer(self._is_done):  # asked only now: all hosts get the same answer
                return False
            self._until_found(lambda: restore(services, spec, name))
            go_on_from_checkpoint(spec)
            self._fetch_inputs()
            self._words = ("--master", self._gathering.address())
        except Unwanted:
            log.info("the job is not to start: %s", self._stop)
        return True

    def _is_unwanted(self) -> bool:
        self._started_at = boottime()  # waiting for other hosts is no running
        self._note_wishes()
        return self._stop is not None

    def _until_found(self, fetch: Callable[[], None]) -> None:
        """Fetch something, however long it takes. Raises: MissingInput when waiting for it would not help."""

        def attempt() -> MissingInput | None:
            try:
                fetch()
            except MissingInput as error:
                return error
            return None

        if missing := self._answer(attempt):
            raise missing

    def _fetch_inputs(self) -> None:
        """Fetch what the job uses. Raises: MissingInput when waiting for it would not help."""
        self._until_found(lambda: fetch_inputs(self._spec, self._services.artifacts))

    def _run_trainer(self) -> int | None:
        """Start the trainer unless that is done, watch it to its end; its exit code, None if it never ran."""
        if self._start.trainer is None and self._start.failure is None:
            self._note_wishes()
            if self._stop is not None:
                return None
            self._start(self._words)
        trainer = self._start.trainer
        if trainer is None:
            return None
        self._started_at = boottime()
        while (exit_code := trainer.poll()) is None:
            self._look_after(trainer)
            self._wakeup.wait(min(LOOK_S, self._spec.lease_ttl_s / 10))
        if not trainer.kill_remaining():
            log.error("some processes of the trainer could not be killed")
        self._raise_if_fenced()
        return exit_code

    def _look_after(self, trainer: Trainer) -> None:
        """Move the deadline, and bring the trainer to its end when that is wanted."""
        if self._lease.fenced.is_set() or not self._deadline.extend(self._lease.renewed_at):
            self._lease.fenced.set()
            trainer.kill()
            return
        self._note_wishes()
        if self._stop is None:
            self._look_for_ranks(trainer)
            return
        now = boottime()
        if not self._told_at:
            log.info("stopping the trainer: %s", self._stop)
            self._told_at = now
            trainer.terminate()
        elif now > self._told_at + self._spec.stop_grace_s:
            self._killed = True
            trainer.kill()

    def _look_for_ranks(self, trainer: Trainer) -> None:
        """Where the hosts do not reach each other, their trainers would wait for ever: give them up."""
        if self._spec.hosts == 1 or self._together:
            return
        self._together = self._spec.folder.has_begun()
        if self._together:
            self._gathering.close()
        elif boottime() > self._started_at + self._services.settings.gang_timeout_s:
            self._apart = True
            trainer.kill()

    def _note_wishes(self) -> None:
        """Learn why the trainer should stop; the user's wish goes before the others."""
        timeout_s = self._spec.timeout_s
        if self._lease.cancel_requested.is_set():
            self._stop = Stop.cancel
        elif self._stop is None and self._termination.requested:
            self._stop = Stop.host_stopping
        elif self._stop is None and self._lease.draining.is_set():
            self._stop = Stop.draining
        elif self._stop is None and self._lease.preempted.is_set():
            self._stop = Stop.preempted
        elif self._stop is None and self._lease.deserted.is_set():
            self._stop = Stop.deserted
        elif self._stop is None and timeout_s is not None and boottime() > self._started_at + timeout_s:
            self._stop = Stop.timeout

    def _outcome(self, exit_code: int | None, delivery: Delivery, delivered: bool) -> Outcome | None:
        """What to report; None when the trainer left because its lease was over."""
        self._raise_if_fenced()
        failure = self._start.failure
        if self._apart:
            where = self._words[-1]
            message = (
                f"The hosts of the job did not reach each other at {where}; look at the network between them."
            )
            return Outcome(Status.failed, Reason.host_failed, message, exit_code)
        outcome = decide(
            Ending(
                exit_code,
                start_failure=None if failure is None else str(failure),
                stop=self._stop,
                killed=self._killed,
                grace_s=self._spec.stop_grace_s,
                timeout_s=self._spec.timeout_s,
                out_of_memory=oom_kills() > self._start.oom_kills_before,
                error=delivery.events.error,
                result=delivery.events.result,
                hosts=self._spec.hosts,
            )
        )
        if outcome is not None and outcome.status is Status.succeeded and not delivered:
            message = "The trainer is done, but its results could not be stored."
            outcome = Outcome(Status.failed, Reason.artifacts_unavailable, message, exit_code)
        if outcome is None or outcome.status is not Status.failed:
            return outcome
        return replace(outcome, log=last_lines(self._spec.folder))

    def _report(self, outcome: Outcome) -> bool:
        """Make the outcome known; another attempt's taking over makes it void."""
        policy = self._services.settings.retry_policy

        def report() -> bool:
            with self._services.database.transaction() as session:
                return finish(
                    session, self._spec.job_id, self._spec.attempt, self._spec.owner, outcome, policy
                )

        if not self._answer(report):
            raise Fenced
        log.info("reported: %s, %s", outcome.status, outcome.reason)
        self._hint()
        return True

    def _let_go(self) -> None:
        """The trainer is gone: free its devices. If this fails, the end of the lease frees them."""
        try:
            with self._services.database.transaction() as session:
                release(session, self._spec.job_id, self._spec.attempt, self._spec.owner)
        except Exception:
            log.exception("the devices could not be released")
        self._hint()

    def _answer(self, ask: Callable[[], T]) -> T:
        """Ask until there is an answer.

        Raises: Fenced when the attempt is over, or there was no answer for so long that it must be.
        """
        give_up = self._patience()
        while True:
            try:
                return ask()
            except Exception:
                log.exception("no answer; asking again in %.1f s", RETRY_S)
            if give_up():
                raise Fenced
            time.sleep(RETRY_S)

    def _patience(self) -> Callable[[], bool]:
        """Tells, from now on, when to give up delivering: the attempt is over, or the outage too long."""
        until = boottime() + self._spec.outage_s
        return lambda: self._lease.fenced.is_set() or boottime() > until

    def _raise_if_fenced(self) -> None:
        if self._lease.fenced.is_set():
            raise Fenced

    def _fence(self) -> None:
        self._lease.fenced.set()
        self._wakeup.set()

    def _renew(self) -> Renewal:
        spec = self._spec
        with self._services.database.transaction() as session:
            return renew(session, spec.job_id, spec.attempt, spec.owner, ttl_s=spec.lease_ttl_s)

    def _listen(self) -> None:
        """Renew at once when something has happened to the job: the user may want it to stop."""
        with Listener(self._services.settings.broker_url, job_channel(self._spec.job_id)) as listener:
            while True:
                if listener.wait(LISTEN_S):
                    self._lease.poke()

    def _hint(self) -> None:
        wake(self._services.settings.broker_url, SCHEDULER, job_channel(self._spec.job_id))
