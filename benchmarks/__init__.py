"""`make bench`: UMA beside its peers, on real models, models of its own and random layers."""
