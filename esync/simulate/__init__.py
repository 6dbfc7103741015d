"""The same code on a modelled cluster, in virtual time: `python -m esync.simulate clusters/NAME.yaml`.

The worker program's loop, its trainer, the algorithms, the parameter server and the coordinator run as they are; what
is modelled are the parts behind the seams: devices, network, and what servers and evaluations cost. docs/simulate.md.
"""
