"""The build systems that an artifact can be handed on to, each by a module of its own."""

from __future__ import annotations

from . import arduino, cmake, esp_idf, platformio, zephyr

__all__ = ["SYSTEMS"]

SYSTEMS = {
    one.name: one for one in (cmake.EXPORTER, arduino.EXPORTER, platformio.EXPORTER, zephyr.EXPORTER, esp_idf.EXPORTER)
}
"""Exporters by name. Those of plugins have names with a dot, so that there are never two of one name."""
