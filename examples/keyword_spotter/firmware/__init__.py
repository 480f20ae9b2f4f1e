"""The keyword spotter as firmware: `make` writes, compiles and runs it."""
