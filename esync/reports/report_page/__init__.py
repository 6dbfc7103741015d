"""One self-contained HTML page for a run or a comparison of runs: `report.html`.

`content` is what a page can show, `page` writes it as HTML. `build` makes it from runs, with the
sentences of `verdict`, the curves of `charts` and the lanes of `timeline`.
"""
