"""Log files of the workers, turned into tables and figures; needs no MXNet.

`summarize` gathers the `iter-N.txt` files of a mode into one summary (`discovery`, `rounds`,
`aggregate`), `plot` compares the summaries (`metrics_table`, `figures`), and `sync_switch_report`
reports on Sync-Switch runs. May import `algorithms`, `config` and `runtime`.
"""
