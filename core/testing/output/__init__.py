"""How conformance is shown: `text` for a terminal. JSON is that of `uma.testing.record`."""
