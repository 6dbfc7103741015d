"""The workers' log files, turned into tables and figures; needs no MXNet.

`summarize` gathers the `iter-N.txt` files of a mode into one summary (`discovery`, `rounds`,
`aggregate`), `plot` compares the summaries (`metrics_table`, `figures`), and `sync_switch_report`
reports on Sync-Switch runs. `runs` loads single runs, whatever the layout of their folders. `report`
writes `report.html` and traces (`trace`), both from what `phases` says about each device's time. May
import `algorithms`, `config`, `loggers`, `runtime`, `version` and `web`.
"""
