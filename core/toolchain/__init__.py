"""C compilers and what they make: finding them and libraries, compiling, reading objects, caching.

It needs the standard library only. What is public of it, `uma.runtime` has.
"""
