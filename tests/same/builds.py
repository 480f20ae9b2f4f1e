"""Run the builds of one side in several processes, and keep what each gave."""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from io import RawIOBase
from pathlib import Path
from types import MappingProxyType

from tests.same.configurations import Configuration
from tests.same.corpus import Model
from tests.same.environments import Side

__all__ = ["DRIVER", "TOO_LONG", "Build", "Outcome", "Store", "plan", "run"]

DRIVER = Path(__file__).with_name("driver.py")

SECONDS = 600
"""Wall time that one build may take."""

TOO_LONG = "time-out"
"""The code of a build that took longer."""

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
        sizes: the bytes of each file.
    """

    code: int | str | None
    message: str
    files: Mapping[str, str]
    cpu_seconds: float = 0.0
    sizes: Mapping[str, int] = field(default_factory=dict)


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
                    build_key = record.pop("key")
                    outcomes[build_key] = Outcome(**record)
        return outcomes


def plan(models: Sequence[Model], configurations: Sequence[Configuration]) -> list[Build]:
    """Return all builds, model by model."""
    return [
        Build(model, configuration)
        for model in models
        for configuration in configurations
        if configuration.accepts(model.name) and (model.ranges or not configuration.is_dynamic)
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
    outcomes = store.outcomes(side.key)
    missing_builds = {build.key: build for build in builds if build.key not in outcomes}
    build_queue = list(missing_builds.values())[::-1]
    log = store.log(side.key)
    log.parent.mkdir(parents=True, exist_ok=True)
    progress = _Progress(side.name, len(builds), len(missing_builds))
    with ExitStack() as stack:
        # Each line is one write: two runs may append to the same file.
        file = stack.enter_context(log.open("ab", buffering=0))
        _end_last_line(log, file)
        idle_workers = [
            _Worker(side.python, store.objects, corpus, variables, seconds)
            for _ in range(min(jobs, len(missing_builds)))
        ]
        for worker in idle_workers:
            stack.enter_context(worker)
        busy_workers: list[_Worker] = []
        while build_queue or busy_workers:
            while build_queue and idle_workers:
                busy_workers.append(idle_workers.pop())
                busy_workers[-1].start(build_queue.pop())
            next_end = min(worker.end for worker in busy_workers)
            readable_workers = select.select(busy_workers, [], [], max(0.0, next_end - time.monotonic()))[0]
            for worker in readable_workers or [worker for worker in busy_workers if worker.end <= time.monotonic()]:
                outcome = worker.outcome() if readable_workers else worker.give_up()
                if outcome is None:
                    continue
                busy_workers.remove(worker)
                idle_workers.append(worker)
                outcomes[worker.build.key] = outcome
                if outcome.code != TOO_LONG:  # another run may have the time
                    record = {"key": worker.build.key, **asdict(outcome)}
                    file.write(json.dumps(record).encode() + b"\n")
                progress.step()
    return outcomes


def _end_last_line(log: Path, file: RawIOBase) -> None:
    """End the last line of a file whose writer was killed within it."""
    content = log.read_bytes()
    if content and not content.endswith(b"\n"):
        file.write(b"\n")


class _Progress:
    """Prints how far a side is, at most every 30 seconds."""

    def __init__(self, name: str, total: int, missing: int) -> None:
        self._name, self._total, self._missing = name, total, missing
        self._start = self._last = time.monotonic()
        print(f"{name}: {total} builds, {total - missing} of them kept from earlier runs", flush=True)

    def step(self) -> None:
        self._missing -= 1
        now = time.monotonic()
        if now - self._last > 30 or not self._missing:
            self._last = now
            done = f"{self._total - self._missing} of {self._total}"
            print(f"{self._name}: {done} builds after {now - self._start:.0f} s", flush=True)


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
        self._line = b""

    def __enter__(self) -> _Worker:
        # Outside of the repository: UMA reads the pyproject.toml of the folders above the current one.
        self._scratch = tempfile.mkdtemp(prefix="uma-same-")
        os.symlink(self._corpus, os.path.join(self._scratch, "models"))
        self._variables["UMA_CACHE_DIR"] = os.path.join(self._scratch, "cache")
        os.mkdir(self._variables["UMA_CACHE_DIR"], 0o700)
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def start(self, build: Build) -> None:
        """Begin a build, which may take until ``end``, on the clock `time.monotonic`."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._scratch,
                env=self._variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # or Ctrl-C would be the outcome of a build
            )
        assert self._process.stdin is not None
        self.build, self.end, self._line = build, time.monotonic() + self._seconds, b""
        with suppress(BrokenPipeError):  # it died: there is no answer
            self._process.stdin.write(json.dumps({"arguments": build.arguments}).encode() + b"\n")
            self._process.stdin.flush()

    def fileno(self) -> int:
        """Return what becomes readable when the process answers or dies."""
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    def outcome(self) -> Outcome | None:
        """Read what is there; return the outcome if that completes it."""
        assert self._process is not None
        part = os.read(self.fileno(), 1 << 16)
        self._line += part
        if self._line.endswith(b"\n"):
            answer = json.loads(self._line)
            if answer.pop("peak_kib") > PEAK_KIB:
                self._kill()
            return Outcome(**answer)
        if part:
            return None
        code = self._process.wait()
        self._kill()
        return Outcome(f"crash: signal {-code}" if code < 0 else f"crash: exit code {code}", "", {})

    def give_up(self) -> Outcome:
        """End a build that takes too long."""
        self._kill()
        return Outcome(TOO_LONG, "", {}, self._seconds)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
