"""Compare what a commit and this work tree generate: ``make same BASE=COMMIT``.

Both build the same corpus of models for the same configurations, each in an environment of its own; sources, headers,
metadata, dumps, weights and messages are compared byte for byte. `allowed.toml` lists intended differences.
"""
