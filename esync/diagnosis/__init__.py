"""`esync doctor`: what this machine, and the hosts of a description, lack for training.

`machine` looks at this machine, `engine` at MXNet and the GPUs, `cluster` at a description and its
hosts, with the checks that launch makes before a job begins. Only the standard library is imported
until a check needs more, so a broken installation is named and ends nothing. May import `config`,
`data`, `launch`, `runtime` and `version`.
"""
