"""Comparison of a build with references: step by step, layer by layer, or as a whole.

`comparison` is the loop over all samples, `models` and `lowered` are the references of models and of lowered forms;
`samples` are the inputs, `stepwise_model` and `isolated_matches` run single steps, `reference_runtimes` are other
runtimes, and `results` has the records.
"""
