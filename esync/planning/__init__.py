"""Plan a training: measure a cluster, predict how fast each mode would be, and recommend one.

`measurement` measures devices, network and servers on the hosts of a description, `calibration`
writes their times down. `ranking` takes a description that has them, and simulates every mode with
the flags that matter for speed, in virtual time and without gradients. Nothing is imported here,
because the agents and probes on other hosts need little of it. May import `algorithms`,
`arguments`, `config`, `coordination`, `exchange`, `launch`, `reports`, `runtime`, `samples`, `simulate`
and `world`.
"""
