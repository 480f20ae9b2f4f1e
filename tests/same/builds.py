"""Run the builds of one side in several processes, and keep what each gave."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import select
import shutil
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import RawIOBase
from pathlib import Path
from types import MappingProxyType

from tests.same.configurations import Configuration
from tests.same.corpus import Model
from tests.same.environments import Side

__all__ = ["DRIVER", "Build", "Outcome", "Store", "plan", "run"]

DRIVER = Path(__file__).with_name("driver.py")

SECONDS = 600
"""Wall time that one build may take."""

PEAK_KIB = 2_000_000
"""Memory of a process after which a new one takes over."""

VARIABLES = MappingProxyType(
    # One thread: the order of a sum in BLAS may depend on their number.
    {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
)
"""The environment variables that builds depend on."""


@dataclass(frozen=True)
class Build:
    """A model and a configuration."""

    model: Model
    configuration: Configuration

    @property
    def arguments(self) -> list[str]:
        """Return the command line, without the model's folder."""
        how = self.configuration
        targets = [word for target in how.targets for word in ("--target", target)]
        shapes = self.model.ranges if how.is_dynamic else self.model.shapes
        limit = ["--max-ram", str(self.model.ram_bytes)] if how.limits_ram else []
        words = ["build", f"models/{self.model.file}", *targets, *limit]
        words += [word for shape in shapes for word in ("--shape", shape)]
        return [*words, *how.options, "--no-compile", "--quiet", "--output", "out", "--dump", "dump"]

    @property
    def key(self) -> str:
        """Return what its outcome depends on, apart from the side."""
        return hashlib.sha256(json.dumps([self.model.digest, self.arguments]).encode()).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """What a build gave.

    Args:
        code: the exit code; None if the command raised; a text if the process crashed, or took too long.
        message: all that it printed.
        files: the SHA-256 of each file of the artifact and of the dumps, by its path.
        cpu_seconds: of the build.
    """

    code: int | str | None
    message: str
    files: Mapping[str, str]
    cpu_seconds: float = 0.0


class Store:
    """Outcomes by side, and the texts of files by digest, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects = folder / "objects"
        self.objects.mkdir(parents=True, exist_ok=True)

    def text(self, digest: str) -> str | None:
        """Return the text of a file; None if it is not text."""
        try:
            return zlib.decompress((self.objects / digest[:2] / digest[2:]).read_bytes()).decode()
        except FileNotFoundError:
            return None

    def log(self, key: str) -> Path:
        """Return the file of the outcomes of a side. They hold for this driver only."""
        driver = hashlib.sha256(DRIVER.read_bytes()).hexdigest()[:8]
        return self.folder / "outcomes" / f"{key}-{driver}.jsonl"

    def outcomes(self, key: str) -> dict[str, Outcome]:
        """Return the outcomes of a side by the keys of builds; skip a line that is cut off."""
        outcomes: dict[str, Outcome] = {}
        with suppress(FileNotFoundError), self.log(key).open(encoding="utf-8") as file:
            for line in file:
                with suppress(ValueError):
                    record = json.loads(line)
                    key = record.pop("key")
                    outcomes[key] = Outcome(**record)
        return outcomes


def plan(models: Sequence[Model], configurations: Sequence[Configuration]) -> list[Build]:
    """Return all builds, model by model."""
    return [
        Build(model, configuration)
        for model in models
        for configuration in configurations
        if configuration.takes(model.name) and (model.ranges or not configuration.is_dynamic)
    ]


def run(
    side: Side,
    builds: Sequence[Build],
    store: Store,
    corpus: Path,
    jobs: int,
    variables: Mapping[str, str] = VARIABLES,
    seconds: float = SECONDS,
) -> dict[str, Outcome]:
    """Return the outcome of each build by its key; those that the store has are not built again.

    Args:
        side: whose compiler builds.
        builds: all builds of the run.
        store: for outcomes and files.
        corpus: the folder of the models.
        jobs: number of processes.
        variables: environment variables of the processes.
        seconds: wall time that one build may take.
    """
    known = store.outcomes(side.key)
    missing = {build.key: build for build in builds if build.key not in known}
    waiting: queue.SimpleQueue[Build] = queue.SimpleQueue()
    for build in missing.values():
        waiting.put(build)
    log = store.log(side.key)
    log.parent.mkdir(parents=True, exist_ok=True)
    lock, start = threading.Lock(), time.monotonic()
    progress = _Progress(side.name, len(builds), len(missing))
    with log.open("ab", buffering=0) as file:  # each line is one write: two runs may append to the same file
        _begin_line(log, file)

        def work() -> None:
            with _Worker(side.python, store.objects, corpus, variables, seconds) as worker:
                while True:
                    try:
                        build = waiting.get_nowait()
                    except queue.Empty:
                        return
                    outcome = worker.build(build)
                    with lock:
                        known[build.key] = outcome
                        if outcome.code != TOO_LONG:  # another run may have the time
                            file.write(json.dumps({"key": build.key, **asdict(outcome)}).encode() + b"\n")
                        progress.step(time.monotonic() - start)

        threads = [threading.Thread(target=work) for _ in range(min(jobs, len(missing)))]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            for _ in _drained(waiting):
                pass
            raise
    return known


TOO_LONG = "time-out"


def _begin_line(log: Path, file: RawIOBase) -> None:
    """End the last line of a file whose writer was killed within it."""
    content = log.read_bytes()
    if content and not content.endswith(b"\n"):
        file.write(b"\n")


def _drained(waiting: queue.SimpleQueue[Build]) -> Iterator[Build]:
    while not waiting.empty():
        yield waiting.get_nowait()


class _Progress:
    """Prints how far a side is, at most every 30 seconds."""

    def __init__(self, name: str, total: int, missing: int) -> None:
        self._name, self._total, self._left, self._last = name, total, missing, 0.0
        print(f"{name}: {total} builds, {total - missing} of them known", flush=True)

    def step(self, seconds: float) -> None:
        self._left -= 1
        if seconds - self._last > 30 or not self._left:
            self._last = seconds
            print(f"{self._name}: {self._total - self._left} of {self._total} after {seconds:.0f} s", flush=True)


class _Worker:
    """A process that builds, one after the other; replaced when it dies or grows."""

    def __init__(self, python: Path, objects: Path, corpus: Path, variables: Mapping[str, str], seconds: float) -> None:
        self._command = [str(python), str(DRIVER), str(objects.resolve())]
        self._corpus, self._seconds = corpus.resolve(), seconds
        self._variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "UMA_", "LC_", "LANG"))
        }
        self._variables.update(variables)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Worker:
        # Outside of the repository: UMA reads the pyproject.toml of the folders above the current one.
        self._scratch = tempfile.mkdtemp(prefix="uma-same-")
        os.symlink(self._corpus, os.path.join(self._scratch, "models"))
        self._variables["UMA_CACHE_DIR"] = os.path.join(self._scratch, "cache")
        os.mkdir(self._variables["UMA_CACHE_DIR"], 0o700)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def build(self, build: Build) -> Outcome:
        """Return the outcome of one build, whatever happens to the process."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._scratch,
                env=self._variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C ends the run after the builds that are under way
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"arguments": build.arguments}).encode() + b"\n")
            self._process.stdin.flush()
        line = self._answer()
        if line is None:
            self._end()
            return Outcome(TOO_LONG, "", {}, self._seconds)
        if not line.endswith(b"\n"):
            code = self._process.wait()
            self._end()
            return Outcome(f"crash: signal {-code}" if code < 0 else f"crash: exit code {code}", "", {})
        answer = json.loads(line)
        if answer.pop("peak_kib") > PEAK_KIB:
            self._end()
        return Outcome(**answer)

    def _answer(self) -> bytes | None:
        """Return the next line of the process, shorter if it died; None if it took too long."""
        assert self._process is not None and self._process.stdout is not None
        pipe, line, end = self._process.stdout.fileno(), b"", time.monotonic() + self._seconds
        while not line.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0, end - time.monotonic()))[0]:
                return None
            part = os.read(pipe, 1 << 16)
            if not part:
                break
            line += part
        return line

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
