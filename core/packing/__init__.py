"""Memory packing: offsets for blocks with known lifetimes, in as little address space as possible."""
