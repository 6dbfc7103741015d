"""Timing round by round: very many workers that exchange synchronously through parameter servers.

Within a round no worker sees what the others send until it ends. So a round is computed in three
steps, each for all workers: they train and ask until everybody is to exchange
(`state_server_queue`), the payloads reach the servers, and the new model reaches the workers
(`exchange`). Only calls to the state server are events: a RESET, and a query after each run of
iterations. The results are those of `simulate.simulation.Simulation`, where every message is an
event; jobs that `simulation.covers` refuses go there.
"""
