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

from cli.archive import refuse_used
from cli.client import Client, job_path
from cli.demo.sandbox import Sandbox
from cli.errors import CliError
from cli.follow import follow_job
from cli.output import console, fields_table
from cli.plot import text_plot

HERE = Path(__file__).parent
JOB_FILE = HERE / "job.json"
DATA = HERE / "data"
QUESTIONS = (
    "Who is the harbour master of Port Merrow?",
    "What colour is the lifeboat?",
    "Which knot makes a loop that does not slip?",
)
LOSS_MUST_FALL_TO = 0.2  # of the first loss
ANSWER_TOKENS = 40


@dataclass(frozen=True)
class Exchange:
    """A question of the data set, and its answer there."""

    question: str
    expected: str


def run_demo(*, keep: bool, model_dir: Path | None) -> None:
    """Run the demonstration. Nothing of it stays at the end, unless asked to `keep` it or a step has failed.

    Raises:
        CliError: a step failed, the loss did not fall, or the trained model does not answer as it was taught.
    """
    if model_dir is not None:
        refuse_used(model_dir)
    signal.signal(signal.SIGTERM, _interrupt)
    screen = console()
    sandbox = Sandbox(Path(tempfile.mkdtemp(prefix="regatta-demo-")))
    started, kept = time.monotonic(), keep
    try:
        _demonstrate(sandbox, screen, keep, model_dir)
    except Exception:
        kept = True  # so that the failure can be looked into
        raise
    finally:
        if kept:
            screen.print(f"\nEverything is still in {sandbox.directory}.")
        else:
            shutil.rmtree(sandbox.directory)
    screen.print(f"\nDone in {time.monotonic() - started:.0f} s; the service is down.", style="bold green")


def _demonstrate(sandbox: Sandbox, screen: Console, keep: bool, model_dir: Path | None) -> None:
    exchanges = chosen_exchanges()
    job = json.loads(JOB_FILE.read_text())
    model = sandbox.models / job["config"]["model_name_or_path"]
    shutil.copytree(DATA, sandbox.datasets / job["config"]["dataset_name_or_path"])

    _heading(screen, "1. A tiny Gemma with random weights and a tokenizer of its own")
    sandbox.show(screen, "tiny-model", "gemma", str(model))
    before = ask(sandbox, model, exchanges)

    _heading(screen, "2. The service: API, scheduler, worker and Valkey, in one directory")
    with sandbox.running(screen) as url, Client(url) as client:
        _heading(screen, "3. POST the job, follow it")
        finished = train(client, job, screen)
        show_losses(client, finished["id"], screen)

        _heading(screen, "4. Download the result, ask it what the data set teaches")
        sandbox.show(screen, "download", finished["id"], str(sandbox.result), url=url)
        after = ask(sandbox, sandbox.result, exchanges)
        screen.print(answer_table(exchanges, before, after))
        check_answers(exchanges, before, after)
        show_unseen(sandbox, screen)

        _heading(screen, "5. The same by hand, while the service is up")
        show_curl_lines(screen, url, finished["id"])
        if model_dir is not None:
            shutil.copytree(sandbox.result, model_dir)
        show_places(screen, sandbox, keep, model_dir)
        if keep:
            _wait_for_ctrl_c(screen, url)


def train(client: Client, body: dict[str, Any], screen: Console) -> dict[str, Any]:
    """POST the job and follow it to its end.

    Raises:
        CliError: it did not succeed; the message holds the end of its log.
    """
    job = client.post("/jobs", body)
    screen.print(f"POST {JOB_FILE} to {client.url}/jobs: job {job['id']}", soft_wrap=True)
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


def show_unseen(sandbox: Sandbox, screen: Console) -> None:
    """How many questions of dev.json are answered right: known facts, asked in other words."""
    unseen = read_exchanges("dev.json")
    answers = ask(sandbox, sandbox.result, unseen)
    right = sum(text.strip() == e.expected for e, text in zip(unseen, answers, strict=True))
    screen.print(f"Asked in words that the training data do not use: {right} of {len(unseen)} right.")


def chosen_exchanges() -> list[Exchange]:
    taught = {exchange.question: exchange for exchange in read_exchanges("train.json")}
    return [taught[question] for question in QUESTIONS]


def read_exchanges(name: str) -> list[Exchange]:
    rows = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    return [Exchange(row["src"], row["tgt"]) for row in rows]


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


def show_curl_lines(screen: Console, url: str, job: str) -> None:
    address = f"{url}{job_path(job)}"
    for line in (
        f"curl -X POST {url}/jobs -H 'Content-Type: application/json' -d @{shlex.quote(str(JOB_FILE))}",
        f"curl {address}",
        f"curl -N -H 'Accept: text/event-stream' {address}/metrics",
        f"curl -H 'Accept: text/plain' '{address}/logs?tail=20'",
        f"curl {address}/result/archive | tar x",
    ):
        screen.print(f"$ {line}", style="cyan", soft_wrap=True)


def show_places(screen: Console, sandbox: Sandbox, keep: bool, model_dir: Path | None) -> None:
    places = [
        ("Data set", sandbox.datasets),
        ("Base model", sandbox.models),
        ("Trained model", sandbox.result),
        ("Database, artifacts, logs", sandbox.service),
    ]
    screen.print()
    screen.print(fields_table([(name, str(path)) for name, path in places]))
    if not keep:
        screen.print("All this is removed now; `regatta demo --keep` leaves it, with the service running.")
    if model_dir is not None:
        screen.print(
            f"The trained model is kept in {model_dir}; Hugging Face transformers loads it as it is. Ask it:"
        )
        words = ("regatta", "generate", str(model_dir), "--prompt", QUESTIONS[0])
        screen.print(f"$ {shlex.join(words)}", style="cyan", soft_wrap=True)


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
