"""``uma KIND``: the command that the plugin of a target kind brings."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UmaError, UsageError

__all__ = ["run_own"]

_STATUSES = range(126)
"""What a command may end with; shells give the others a meaning of their own."""


def run_own(kind: str, arguments: Sequence[str]) -> int:
    """Have the plugin of a kind run its command; gives the exit status.

    Raises:
        UmaError: as the command raises it.
        UsageError: the plugin has no command, or is disabled.
        PluginError: the plugin cannot be used, or its command is at fault.
    """
    from ..plugins import default_host
    from ..targets.values import shown

    plugin = default_host().plugin_for(kind)
    if "command" not in plugin.implemented:
        what = f"plugin {plugin.entry.distribution} {plugin.entry.version} has no command of its own, uma {kind}"
        hint = f"see uma --help for the commands that there are, and uma targets {kind} for what the kind is"
        raise UsageError(what, hint=hint)

    def called() -> object:
        try:
            return plugin.hooks.command(name=kind, arguments=tuple(arguments))
        except (BrokenPipeError, SystemExit, UmaError) as left:  # which are not faults of a command
            return left

    result = plugin.run("hook command", called)
    if isinstance(result, (BrokenPipeError, UmaError)):
        raise result
    status = result.code if isinstance(result, SystemExit) else result
    if status is None:
        return 0
    if type(status) is not int or status not in _STATUSES:
        raise plugin.wrong("command", f"ended uma {kind} with {shown(status)}, not with a status from 0 to 125")
    return status
