"""The host side of a compiled model: finding a C compiler, caching libraries, calling them.

`toolchain` and `cache` need the standard library only; `native` needs cffi and numpy and is imported where a model
is run. The C that every model shares is in ``csrc/``.
"""
