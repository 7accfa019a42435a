"""How fast a checkpoint is written and read, beside `cp` of the same files on the same disk.

Trains one step of a fresh Gemma, so that weights and optimizer state take the wanted room. Then by turns:
write a checkpoint (with checksums, synced to the disk), `cp` it and sync the copy; load it into a fresh model
and optimizer, `cp` it without a sync. Everything is in the kernel's cache when it is read, for both.

    python benchmarks/checkpoint_speed.py [--megabytes 500] [--rounds 5] [--folder DIR]
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.async_save import contents, fresh_updater, seconds, take_step
from benchmarks.results import table, write_section
from trainer.checkpoint.directory import damage, sync_tree
from trainer.checkpoint.optimizer_state import load_optimizer
from trainer.checkpoint.saver import Saver
from trainer.checkpoint.target import whole_directory_target
from trainer.models.weights_load import load_weights
from trainer.parallel.update import Updater

CP = shutil.which("cp") or "cp"
LIMIT = 0.7
"""The least share of the speed of `cp`."""


def write(saver: Saver, directory: Path, updater: Updater) -> None:
    saver.save(whole_directory_target(directory), contents(updater))


def copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run([CP, "-r", str(source), str(target)], check=True, timeout=600)


def copy_and_sync(source: Path, target: Path) -> None:
    copy(source, target)
    sync_tree(target)


def read(updater: Updater, directory: Path) -> None:
    load_weights(updater.model, directory)
    load_optimizer(updater, directory)


def verify(directory: Path) -> None:
    if found := damage(directory):
        raise AssertionError(found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; by default that of TMPDIR")
    arguments = parser.parse_args()
    updater, other = fresh_updater(arguments.megabytes), fresh_updater(arguments.megabytes)
    take_step(updater)
    take_step(other)
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        saved, copied = Path(temporary) / "saved", Path(temporary) / "copied"
        saver = Saver(Path(temporary))
        for _ in range(1 + arguments.rounds):
            for name, work in (
                ("write", lambda: write(saver, saved, updater)),
                ("copy and sync", lambda: copy_and_sync(saved, copied)),
                ("read", lambda: read(other, saved)),
                ("copy", lambda: copy(saved, copied)),
                ("verify", lambda: verify(saved)),
            ):
                times.setdefault(name, []).append(seconds(work))
        size = sum(path.stat().st_size for path in saved.iterdir())
    # The first round finds its memory.
    medians = {name: statistics.median(found[1:]) for name, found in times.items()}
    rates = {name: f"{size / 1e6 / median:.0f} MB/s" for name, median in medians.items()}
    written = medians["copy and sync"] / medians["write"]
    loaded = medians["copy"] / medians["read"]
    verified = medians["copy"] / medians["verify"]
    rows = [
        ["write: checksums, synced, renamed", rates["write"], rates["copy and sync"], f"{written:.2f}"],
        ["read into model and optimizer", rates["read"], rates["copy"], f"{loaded:.2f}"],
        ["verify all checksums", rates["verify"], rates["copy"], f"{verified:.2f}"],
    ]
    text = f"{size / 1e6:.0f} MB of float32 weights and AdamW state in {len(times['write']) - 1} rounds, "
    text += f"medians; the copy beside a write is synced too. Limit of the first two ratios: {LIMIT}.\n\n"
    write_section("Checkpoints", text + table(["", "Regatta", "`cp`", "ratio"], rows))
    return 0 if min(written, loaded) >= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
