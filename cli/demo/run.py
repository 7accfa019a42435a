"""`regatta demo`: the whole way from an argument file to a model that answers, on this machine."""

import json
import math
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.client import Client, job_path
from cli.demo.sandbox import Sandbox
from cli.downloads import download_checkpoint
from cli.errors import CliError
from cli.follow import follow_job
from cli.output import console
from cli.plot import text_plot

HERE = Path(__file__).parent
JOB_FILE = HERE / "job.json"
DATA = HERE / "data"
TINY_MODEL = ("--hidden-size", "96", "--layers", "2")
QUESTIONS = (
    "Who is the harbour master of Port Merrow?",
    "What colour is the lifeboat?",
    "Which knot makes a loop that does not slip?",
)
LOSS_MUST_FALL_TO = 0.2  # of the first loss
ANSWER_TOKENS = 40


@dataclass(frozen=True)
class Exchange:
    """A question of the training data, and its answer there."""

    question: str
    expected: str


def run_demo(*, keep: bool, model_dir: Path | None) -> None:
    """Run the demonstration; everything it starts and writes is gone at the end, unless asked to keep it.

    Raises:
        CliError: a step failed, the loss did not fall, or the trained model does not answer as it was taught.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    screen = console()
    sandbox = Sandbox(Path(tempfile.mkdtemp(prefix="regatta-demo-")))
    started, done = time.monotonic(), False
    try:
        _demonstrate(sandbox, screen, keep=keep, model_dir=model_dir)
        done = True
    finally:
        if keep or not done:
            screen.print(f"\nEverything is still in {sandbox.directory}.")
        else:
            shutil.rmtree(sandbox.directory)
    screen.print(f"\nDone in {time.monotonic() - started:.0f} s: the service is down.", style="bold green")


def _demonstrate(sandbox: Sandbox, screen: Console, *, keep: bool, model_dir: Path | None) -> None:
    exchanges = chosen_exchanges()
    job = json.loads(JOB_FILE.read_text())
    model = sandbox.models / job["config"]["model_name_or_path"]
    shutil.copytree(DATA, sandbox.datasets / job["config"]["dataset_name_or_path"])

    _heading(screen, "1. A tiny Gemma with random weights and a tokenizer of its own")
    _run(sandbox, screen, "tiny-model", "gemma", str(model), *TINY_MODEL)
    before = ask(sandbox, model, exchanges)

    _heading(screen, "2. The service: API, scheduler, worker and Valkey, in one directory")
    with sandbox.running() as url, Client(url) as client:
        screen.print(f"regatta up is ready at {url}")
        _heading(screen, "3. POST the job, follow it")
        finished = train(client, job, screen)
        show_losses(client, finished["id"], screen)

        _heading(screen, "4. Download the result, ask it")
        download_checkpoint(client, finished["id"], None, sandbox.result)
        after = ask(sandbox, sandbox.result, exchanges)
        screen.print(answer_table(exchanges, before, after))
        check_answers(exchanges, before, after)

        _heading(screen, "5. The same by hand")
        _say_where(screen, sandbox, url, finished)
        if model_dir is not None:
            shutil.copytree(sandbox.result, model_dir)
            screen.print(f"The trained model is kept in {model_dir}.")
        if keep:
            _wait_for_ctrl_c(screen, url)


def train(client: Client, body: dict[str, Any], screen: Console) -> dict[str, Any]:
    """POST the job and follow it to its end.

    Raises:
        CliError: it did not succeed; the message holds the end of its log.
    """
    screen.print(f"POST /jobs  (body: {JOB_FILE})")
    job = client.post("/jobs", body)
    screen.print(f"Job {job['id']}")
    finished = follow_job(client, job["id"], screen)
    if finished["status"] != "succeeded":
        lines = client.items(job_path(job["id"], "logs"), {"tail": 20})
        log = "\n".join(line["line"] for line in lines)
        raise CliError(f"The job {finished['status']} ({finished['reason']}): {finished['message']}\n{log}")
    return finished


def show_losses(client: Client, job: str, screen: Console) -> None:
    """Plot the losses that the service has kept.

    Raises:
        CliError: the last is not far below the first.
    """
    metrics = list(client.items(job_path(job, "metrics"), {"kind": "train"}))
    losses = [float(metric["values"]["loss"]) for metric in metrics]
    if len(losses) < 2:
        raise CliError(f"The service has kept {len(losses)} losses of the job.")
    screen.print("\n".join(text_plot(losses)))
    first, last = losses[0], losses[-1]
    screen.print(
        f"Loss at step {metrics[0]['step']}: {first:.3f}. At step {metrics[-1]['step']}: {last:.3f}."
    )
    if not (math.isfinite(last) and last < first * LOSS_MUST_FALL_TO):
        raise CliError(f"The loss did not fall as it should: from {first:.3f} to {last:.3f}.")


def chosen_exchanges() -> list[Exchange]:
    rows = [json.loads(line) for line in (DATA / "train.json").read_text().splitlines()]
    answers = {row["src"]: row["tgt"] for row in rows}
    return [Exchange(question, answers[question]) for question in QUESTIONS]


def ask(sandbox: Sandbox, model: Path, exchanges: Sequence[Exchange]) -> list[str]:
    """What a model says to the questions, greedily."""
    prompts = [word for exchange in exchanges for word in ("--prompt", exchange.question)]
    told = sandbox.regatta("generate", str(model), *prompts, "--max-new-tokens", str(ANSWER_TOKENS), "--json")
    return [answer["completion"] for answer in json.loads(told)]


def check_answers(exchanges: Sequence[Exchange], before: Sequence[str], after: Sequence[str]) -> None:
    """Raises CliError unless every answer was wrong before and is right now."""
    wrong = [e.question for e, text in zip(exchanges, after, strict=True) if text.strip() != e.expected]
    if wrong:
        raise CliError(f"The trained model does not answer as it was taught: {' '.join(wrong)}")
    known = [e.question for e, text in zip(exchanges, before, strict=True) if text.strip() == e.expected]
    if known:
        raise CliError(f"The untrained model knew the answer already: {' '.join(known)}")


def answer_table(exchanges: Sequence[Exchange], before: Sequence[str], after: Sequence[str]) -> Table:
    table = Table(show_lines=True)
    for column in ("Question", "Before", "After"):
        table.add_column(column, overflow="fold")
    for exchange, first, last in zip(exchanges, before, after, strict=True):
        style = "green" if last.strip() == exchange.expected else "red"
        table.add_row(
            Text(exchange.question), Text(first.strip(), style="dim"), Text(last.strip(), style=style)
        )
    return table


def _say_where(screen: Console, sandbox: Sandbox, url: str, job: dict[str, Any]) -> None:
    screen.print(f"Data set        {sandbox.datasets}")
    screen.print(f"Base model      {sandbox.models}")
    screen.print(f"Service's data  {sandbox.service} (database, artifacts, logs)")
    screen.print(f"Trained model   {sandbox.result} (loads in Hugging Face transformers as it is)")
    address = f"{url}{job_path(job['id'])}"
    for line in (
        f"curl -X POST {url}/jobs -H 'Content-Type: application/json' -d @{shlex.quote(str(JOB_FILE))}",
        f"curl {address}",
        f"curl -N -H 'Accept: text/event-stream' {address}/metrics",
        f"curl {address}/logs?tail=20 -H 'Accept: text/plain'",
        f"curl {address}/result/archive | tar x",
    ):
        screen.print(f"  {line}", style="cyan", soft_wrap=True)


def _run(sandbox: Sandbox, screen: Console, *words: str) -> None:
    screen.print(f"$ regatta {shlex.join(words)}", style="cyan", soft_wrap=True)
    sandbox.regatta(*words)


def _heading(screen: Console, text: str) -> None:
    screen.print(f"\n{text}", style="bold")


def _wait_for_ctrl_c(screen: Console, url: str) -> None:
    screen.print(f"\nThe service goes on at {url} until Ctrl-C.", style="bold")
    try:
        signal.pause()
    except KeyboardInterrupt:
        screen.print("Stopping.")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
