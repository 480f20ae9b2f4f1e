"""From relay that is placed to a program: kernels of hosts, regions of accelerators, and the order of their calls.

`members` are the targets of the build, `fuse` groups what a host computes into kernels, `offers` asks plugins for their
loops, `lower` makes those of hosts and `regions` those of accelerators, `loops` are rewritten until they are flat, and
`sequence` with `keep` orders the calls.
"""
