"""What looks at a build and tells: where ops went and why, what they cost, and whether they are computed right.

`asked` has what Python asks: `explain`, `verify`, `installed_targets`. `explain`, with `layers` and `costs`, says where ops
went; `streams` what streams of commands say; `limits` what is alive where too much is; `trace` what a run did, as tracks;
`report` shows all of it on a page. All else is `verify`: `samples` are what a model is fed, `inspected` and `parts` run
single steps of it, `oracles` are other runtimes, `verification` has the records.
"""
