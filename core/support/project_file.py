"""What a project says of itself to UMA: ``[tool.uma]`` of the nearest pyproject.toml that this user may trust.

Options that nobody gave on the command line come from it. So it counts only if nobody but this user and root can have
written it: in a folder like /tmp, or a colleague's, the nearest file is another user's.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from ..errors import UsageError
from .opt_ins import REPLACED

__all__ = ["SETTINGS", "IgnoredProject", "Project", "ProjectError", "find_project", "ignored_projects"]

SETTINGS = (
    "allow",
    "costs",
    "disable-plugins",
    "io",
    "max-cycles",
    "max-ram",
    "max-rom",
    "partition",
    "plan",
    "require-plugins",
    "targets",
)
"""The keys of ``[tool.uma]``."""

_MAX_BYTES = 1 << 20
_KEY = re.compile(rb"(?<![\w-])[\"']?uma[\"']?\s*[.=\]]")
"""The key ``uma`` of a table, however it is written."""


class ProjectError(UsageError):
    """The file of a project is at fault, whatever it was read for; ``where`` names it."""


class Project(NamedTuple):
    """The table ``[tool.uma]`` of a project.

    Args:
        path: of the file.
        settings: what the table holds; the keys are in `SETTINGS`, the values as the file has them.
    """

    path: str
    settings: Mapping[str, object]

    def names(self, setting: str, example: str) -> list[str]:
        """Return the value of a setting that is a list of names; empty where the file has no such setting.

        Args:
            setting: its key.
            example: a name for the hint.

        Raises:
            ProjectError: the value is not a list of texts.
        """
        names = self.settings.get(setting, [])
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return names
        where = f"{self.path}, in [tool.uma]"
        raise ProjectError(f"{setting} is not a list of names", where=where, hint=f'write {setting} = ["{example}"]')


class IgnoredProject(NamedTuple):
    """A file with settings for UMA that another user can have written.

    Args:
        path: of the file.
        reason: who can have written it.
        remedy: what makes it count.
    """

    path: str
    reason: str
    remedy: str


def find_project(folder: str | os.PathLike[str] | None = None) -> Project | None:
    """Return the project that ``folder`` (default: the current one) is in: that of the nearest pyproject.toml above it.

    A file that another user can have written is skipped, with a `RuntimeWarning` if it has settings for UMA.

    Raises:
        ProjectError: the file cannot be read, is not TOML, or has a setting for UMA that there is not.
    """
    project, ignored = _search(folder)
    for one in ignored:
        _warn(one)
    return project


def ignored_projects(folder: str | os.PathLike[str] | None = None) -> list[IgnoredProject]:
    """Return the files that `find_project` skips although they have settings for UMA, the nearest first.

    Raises:
        ProjectError: as `find_project`.
    """
    return _search(folder)[1]


def _search(folder: str | os.PathLike[str] | None) -> tuple[Project | None, list[IgnoredProject]]:
    ignored: list[IgnoredProject] = []
    for path in _candidates(folder):
        content: bytes | ProjectError
        try:
            link, status = os.lstat(path), os.stat(path)
            with open(path, "rb", opener=_open_at_once) as file:
                status, content = os.fstat(file.fileno()), file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            continue  # it was removed just now
        except OSError as error:
            message = f"the project's file cannot be read: {error.strerror}"
            content = ProjectError(message, where=path, hint="make it readable")
        # Who owns a symbolic link chose what it leads to.
        distrust = _distrust({link.st_uid, status.st_uid}, status)
        if distrust is None:
            if isinstance(content, ProjectError):
                raise content
            return Project(path, _settings(path, content)), ignored
        if isinstance(content, bytes) and _KEY.search(content):  # a hostile file is not parsed
            ignored.append(IgnoredProject(path, *distrust))
    return None, ignored


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe that was put there a moment ago does not block


def _candidates(folder: str | os.PathLike[str] | None) -> Iterator[str]:
    """Yield the files pyproject.toml of a folder and those above it, the nearest first."""
    try:
        start = os.getcwd() if folder is None else os.path.abspath(folder)
    except FileNotFoundError:  # the current folder was removed: it is in no project
        return
    above = ""
    while start != above:
        path = os.path.join(start, "pyproject.toml")
        if os.path.isfile(path):
            yield path
        above, start = start, os.path.dirname(start)


def _distrust(owners: Set[int], status: os.stat_result) -> tuple[str, str] | None:
    """Return who else can have written a file, and the remedy; None if only this user and root can."""
    for owner in owners - {os.geteuid(), 0}:
        return f"it belongs to {_user(owner)}", "copy it, or take ownership of it (chown)"
    if status.st_mode & stat.S_IWOTH:
        return "every user can write it", "remove that permission (chmod o-w)"
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid):
        return "other users of its group can write it", "remove that permission (chmod g-w)"
    return None


def _user(number: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(number).pw_name!r}"
    except KeyError:
        return f"user {number}"


def _is_private_group(group: int, user: int) -> bool:
    """Return whether a group is the one that a user alone is in: of the same name, as where the umask is 002."""
    import grp
    import pwd

    try:
        name, record = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
    except KeyError:
        return group == user  # there is no list of users, as in many containers
    return record.gr_name == name and set(record.gr_mem) <= {name}


@functools.cache
def _warn(ignored: IgnoredProject) -> None:
    """Warn of an ignored file, once in a process."""
    text = (
        f"the settings for UMA in {ignored.path} are ignored, because {ignored.reason}; to use them, {ignored.remedy}"
    )
    warnings.warn(text, RuntimeWarning, stacklevel=3)


def _settings(path: str, content: bytes) -> Mapping[str, object]:
    if b"uma" not in content:
        return {}  # it says nothing to UMA, and what is wrong with it is not UMA's business
    if len(content) > _MAX_BYTES:
        message = f"the project's file has more than {_MAX_BYTES} bytes"
        raise ProjectError(message, where=path, hint="it should be the file of a project")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        table: object = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # what is wrong with TOML or with UTF-8 is a ValueError
        message = f"the project's file is not TOML: {error}"
        raise ProjectError(message, where=path, hint="mend it: UMA reads [tool.uma] of it") from error
    for name in ("tool", "uma"):
        table = table.get(name, {}) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise ProjectError(
            "[tool.uma] is not a table", where=path, hint='write [tool.uma.targets] and name = "c -opt=2"'
        )
    for name in table:
        if name in REPLACED:
            hint = 'write allow = {{"{}" = "{}"}}'.format(*REPLACED[name])
            raise ProjectError(f"the setting {name!r} of [tool.uma] was replaced by 'allow'", where=path, hint=hint)
        if name not in SETTINGS:
            import difflib

            close = difflib.get_close_matches(name, SETTINGS, 1)
            did = f"did you mean {close[0]!r}? " if close else ""
            message = f"[tool.uma] has the setting {name[:100]!r}, which there is not"
            raise ProjectError(message, where=path, hint=f"{did}there are {', '.join(SETTINGS)}")
    return table
