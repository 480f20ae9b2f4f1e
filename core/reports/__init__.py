"""What looks at a build and tells: where ops went and why, what they cost, and whether they are computed right.

`explain`, with `layers` and `costs`; `streams`: what streams of commands say. All else is `verify`: `samples` are what
a model is fed, `inspected` and `parts` run single steps of it, `oracles` are other runtimes, `verification` has the
records.
"""
