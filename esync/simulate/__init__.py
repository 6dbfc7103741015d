"""Simulation of a cluster in virtual time: `python -m esync.simulate clusters/NAME.yaml`.

The worker program's loop, its trainer, the algorithms, the parameter server and the coordinator run
unchanged. The parts behind their interfaces are modelled: devices (`devices`), the network
(`network`, `ports`), and the costs of servers, the state server and evaluations. `engine` is the
virtual clock, and `simulation` runs one job. May import
`algorithms`, `arguments`, `config`, `coordination`, `data`, `exchange`, `gluon`, `launch`,
`loggers`, `models`, `reports`, `runtime`, `trainer_status` and `training`. See docs/how-to/simulate.md.
"""
