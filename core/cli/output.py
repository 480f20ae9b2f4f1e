"""What commands print: text for people, or one JSON object for programs; progress and errors on stderr."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from ..errors import UmaError, UsageError
from ..support.json_record import to_json
from ..targets.values import shorten

__all__ = ["SCHEMA_VERSION", "Output", "own_stdout"]

SCHEMA_VERSION = 4
"""Of what ``--json`` prints. Grows when a field changes its meaning or goes; new fields may come at any time."""


_NUMBER = re.compile(r"[0-9.]+(e[-+][0-9]+)?%?|-")
"""A number in a table, or that there is none."""

_MAX_LINE_CHARS = 1000
"""Of one line of an error."""


class Output:
    """Where a command's results go.

    Args:
        stdout: where text and JSON are printed; None for nowhere.
        as_json: the result is one JSON object on stdout, and no text is printed there.
        quiet: no text but errors.
        verbose: also what was noted on the way, how long each step took, and where an error came from.
    """

    def __init__(
        self, stdout: TextIO | None, *, as_json: bool = False, quiet: bool = False, verbose: bool = False
    ) -> None:
        self._stdout = stdout
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose
        self._answered = False
        self._step: tuple[str, float] | None = None
        self._live = not quiet and _is_terminal(sys.stderr)

    def line(self, text: str = "") -> None:
        """A line for people."""
        if not (self.as_json or self.quiet):
            self._end_step()
            self._print(text)

    def relay(self, text: str) -> None:
        """Print what another `Output` like this one has printed."""
        self._end_step()
        self._answered = self.as_json and bool(text)
        self._print(text, end="")

    def table(self, rows: Mapping[str, str]) -> None:
        """Names and values, one pair a line."""
        width = max(map(len, rows), default=0)
        for name, value in rows.items():
            self.line(f"  {name:<{width}}  {value}")

    def columns(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table with a heading; the columns of numbers stand to the right."""
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
        numbers = [all(_NUMBER.fullmatch(row[i]) for row in rows) for i in range(len(head))]
        for row in (head, *rows):
            cells = (f"{c:>{w}}" if right else f"{c:<{w}}" for c, w, right in zip(row, widths, numbers, strict=True))
            self.line(f"  {'  '.join(cells)}".rstrip())

    def notes(self, texts: Sequence[str], details: Sequence[str] = ()) -> None:
        """What was noted on the way: all with ``-v``, else that there is something, unless there are details only."""
        if self.verbose:
            for text in (*texts, *details):
                self.complain(f"note: {text}")
        elif texts:
            count = f"{len(texts)} notes" if len(texts) > 1 else "a note"
            self.line(f"there {'are' if len(texts) > 1 else 'is'} {count} on how the model was read: -v shows it all")

    def step(self, what: str) -> None:
        """A step of the work begins, and the one before ends."""
        self._end_step()
        self._step = what, time.perf_counter()
        self._status(f"{what} ...")

    def result(self, fields: Mapping[str, Any]) -> None:
        """Print the JSON object of values and records; NaN and infinities become ``nan``, ``inf`` and ``-inf``."""
        if self.as_json:
            self._end_step()
            self._answered = True
            record = {"schema_version": SCHEMA_VERSION, **_finite(to_json(fields))}
            self._print(json.dumps(record, indent=2, allow_nan=False))

    def finish(self) -> None:
        """All is said."""
        self._end_step()
        self._print("", end="")

    def fail(self, error: UmaError) -> int:
        """Report an error, as JSON too unless there is an answer already; gives its exit code."""
        # Names are a model's, and may be of any length; with -v, all is in the traceback.
        lines = (shorten(line, _MAX_LINE_CHARS) for line in str(error).split("\n"))
        self.complain("uma: error: " + "\n".join(lines))
        if self.verbose:
            self.complain("".join(traceback.format_exception(error)).rstrip("\n"))
        if not self._answered:
            try:
                self.result({"error": {**to_json(error), "exit_code": error.exit_code}})
            except (OSError, UmaError):
                self.abandon()  # the error was said; that stdout is closed or full adds nothing to it
        return error.exit_code

    def complain(self, text: str) -> None:
        """A line on stderr."""
        self._end_step()
        with contextlib.suppress(OSError):  # there is nowhere left to say so
            print(_printable(text, sys.stderr), file=sys.stderr, flush=True)

    def abandon(self) -> None:
        """Nobody reads stdout: forget what waits to be written there, about which Python would complain at exit."""
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stdout.fileno())  # type: ignore[union-attr]  # where it is None, as where it is closed
            os.close(nowhere)
        except (AttributeError, OSError, ValueError):
            pass  # closed, or replaced by something that is not a file

    def _end_step(self) -> None:
        if self._step is None:
            return
        (what, start), self._step = self._step, None
        self._status("")
        if self.verbose:
            self.complain(f"{what}: {time.perf_counter() - start:.2f} s")

    def _status(self, text: str) -> None:
        """Show ``text`` in the terminal's last line, in place of what was there."""
        if self._live:
            with contextlib.suppress(OSError):
                print(f"\r\x1b[K{_printable(text, sys.stderr)}", end="", file=sys.stderr, flush=True)

    def _print(self, text: str, end: str = "\n") -> None:
        if self._stdout is None:
            return  # print() takes None for the stream of the process
        try:
            print(_printable(text, self._stdout), end=end, file=self._stdout, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.abandon()
            raise UsageError(f"cannot write to standard output: {error.strerror}") from error


@contextlib.contextmanager
def own_stdout() -> Iterator[TextIO | None]:
    """Within, what anybody prints to stdout goes to stderr: plugins, and the tools that they start.

    Gives the stream that is stdout otherwise, for results alone; None where stdout is closed.
    """
    stdout = sys.stdout
    with contextlib.ExitStack() as stack:
        try:
            if stdout is not None and stdout.fileno() == 1:
                stdout.flush()
                kept = open(os.dup(1), "w", encoding=stdout.encoding, errors=stdout.errors)  # noqa: SIM115 - in `stack`
                stack.callback(_put_back, stdout, kept)
                os.dup2(2, 1)
                stdout = kept
        except (OSError, ValueError):
            pass  # replaced by something that is not a file, or there is no stderr either: what is Python's is caught
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield stdout


def _put_back(stdout: TextIO, kept: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody reads what others printed
        stdout.flush()
    os.dup2(kept.fileno(), 1)
    with contextlib.suppress(OSError):  # what could not be printed was said when it was
        kept.close()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def _printable(text: str, stream: TextIO | None) -> str:
    """``text`` without what could steer a terminal, and as far as the stream's encoding goes: names are a model's."""
    text = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text.expandtabs())
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
