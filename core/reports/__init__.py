"""Explanations and reports of a build: placement with reasons, costs, memory, traces and the report page.

`explain`, with `layers` and `costs`, says where each op runs and why; `command_listing` decodes command streams;
`limits` names the buffers that exceed a limit; `chrome_trace` shows a run as tracks; `report` is the page with all of
it, and `overviews` makes it, and plans.
"""
