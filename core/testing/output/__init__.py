"""How conformance is shown: as text for a terminal, as JUnit XML, as HTML. JSON is that of `uma.testing.record`."""
