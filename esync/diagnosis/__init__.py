"""`esync doctor`: find problems of this machine, and of the hosts of a description.

`machine` checks this machine, `engine` MXNet and the GPUs, `cluster` a description and its hosts, with
launch's checks. Imports other than the standard library are made inside the checks, so that a broken
installation is reported like any other problem. May import `config`, `data`, `launch`, `runtime` and
`version`.
"""
