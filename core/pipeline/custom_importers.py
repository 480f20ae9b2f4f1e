"""Who imports the layers whose operators are a plugin's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from ..errors import ModelError, PluginError
from ..lowering.build_targets import BuildTargets
from ..plugins import LoadedPlugin
from ..relay.custom_ops import CustomImporter, CustomLayer
from ..relay.expr import Expr

__all__ = ["CustomImporters"]


class CustomImporters:
    """The importers that the plugins of a build bring; what front-ends ask for those of operators they do not know.

    Args:
        members: the targets of the build; None for no plugins.
    """

    def __init__(self, members: BuildTargets | None) -> None:
        self._plugins = () if members is None else members.plugins

    def __call__(self, form: Literal["tflite", "onnx"], operator: str) -> CustomImporter | None:
        """The importer of an operator, None where no plugin has one.

        Args:
            form: of the model file.
            operator: the custom code, or ``domain::OpType``.

        Raises:
            PluginError: two ops want it.
        """
        owners = [
            (plugin, custom.op.name, getattr(custom, form)[operator])
            for plugin in self._plugins
            for custom in plugin.ops.values()
            if operator in getattr(custom, form)
        ]
        if not owners:
            return None
        if len(owners) > 1:
            rivals = " and ".join(f"{name!r} ({plugin.entry.distribution})" for plugin, name, _ in owners)
            raise PluginError(
                f"the operator {operator!r} is imported by more than one op of a plugin: {rivals}",
                hint="build for targets of which only one plugin imports it",
            )
        plugin, name, importer = owners[0]
        return partial(self._run, plugin, name, importer)

    def _run(
        self, plugin: LoadedPlugin, name: str, importer: CustomImporter, layer: CustomLayer
    ) -> Expr | Sequence[Expr]:
        def action() -> Expr | Sequence[Expr] | ModelError:
            try:
                return importer(layer)
            except ModelError as error:
                return error

        imported = plugin.run(f"the importer of op {name!r}", action)
        if isinstance(imported, ModelError):
            raise imported
        results = [imported] if isinstance(imported, Expr) else imported
        if not isinstance(results, (list, tuple)) or not all(isinstance(result, Expr) for result in results):
            raise plugin.fault(f"gave {type(imported).__name__} from the importer of op {name!r}, not expressions")
        return tuple(results)
