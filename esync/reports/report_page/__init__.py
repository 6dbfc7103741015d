"""One self-contained HTML page for a run or a comparison of runs: `report.html`.

`content` defines the elements of a page, and `page` writes them as HTML. `build` makes them from runs,
with the sentences of `verdict`, the curves of `charts`, the tables of `evaluation_parts` and the lanes of
`timeline`.
"""
