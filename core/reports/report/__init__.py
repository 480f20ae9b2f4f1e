"""A model on one page, and the same as data.

`records` say all of it; `builder` makes them of a build or an artifact, with `dataflow` and `summary`. They are written
by `page` (HTML; of `components`, `charts` and `lanes`), `as_json`, `as_csv` and `as_markdown`; `write` chooses.
"""

from .builder import Measured, make_report
from .write import FORMATS, Report, check_output

__all__ = ["FORMATS", "Measured", "Report", "check_output", "make_report"]
