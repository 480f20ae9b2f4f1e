"""From relay that is placed to a program: kernels of hosts, regions of accelerators, and the order of their calls.

`build_targets` are the targets of the build, `fuse` groups what a host computes into kernels, `strategy_dispatch` asks
plugins for their loops, `lower` makes those of hosts and `region_lowering` those of accelerators, `loops` are
rewritten until they are flat, and `sequence` with `state_update` orders the calls.
"""
