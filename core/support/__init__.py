"""Helpers that any layer may use: JSON records, the project file, checks of arguments, paths and rounding."""
