"""The judge of a change: ``make same BASE=COMMIT`` shows what this work tree generates otherwise than a commit does.

Both build the same corpus of models for the same configurations, each in an environment of its own; sources, headers,
metadata, dumps, weights and messages are compared byte for byte. `allowed.toml` lists intended differences.
"""
