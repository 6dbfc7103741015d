"""Launcher: start a whole cluster from one description, `python -m esync.launch FILE`.

Planning starts nothing: `description` checks the YAML file (`yaml_text`, `fields`, `key_paths`,
`simulation_schema`), `flags` the worker's flags, and `plan` turns both into the commands of all
processes (`spec`): `services`, `workers` and their `host_groups`. Running: `supervisor` starts them
(`processes`, `process_backend`, `process_shim`), `replacements` and `unreachable` decide what
happens when one ends too early or its host is silent, `view` shows progress (`status_table`,
`silence`), `report` the `outcome`. Other hosts: `ssh` or `slurm`, `agent_pool` and `remote_agent`,
`heartbeat_pipe`, `preflight`, `reachability`, `gather`; `hostfile` reads those of MPI and Horovod. May
import `algorithms`, `arguments`, `checkpoints`, `config`, `data`, `exchange`, `loggers`, `reports`,
`runtime`, `training` and `version`.
"""
