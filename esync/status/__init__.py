"""Status of a state server's jobs on a terminal: `python -m esync.status`.

`client` queries the JSON API, `view` turns a job into tables. May import `config`, `coordination`
and `runtime`.
"""
