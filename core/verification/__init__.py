"""Comparison of a build with references: step by step, layer by layer, or as a whole.

`models`, `lowered` and `dynamic` compare models, lowered forms and models with dynamic dimensions; `samples` are the
inputs, `stepwise_model` and `isolated_matches` run single steps, `reference_runtimes` are other runtimes, and `results`
has the records.
"""
