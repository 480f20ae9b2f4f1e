"""The version of `uma-core`; the build back-end reads it from here."""

__all__ = ["__version__"]

__version__ = "0.1.0"
"""The version of UMA, as `major.minor.patch`."""
