"""Timing round by round, for very many workers that exchange synchronously through servers.

Workers do not affect one another before the end of a round, which is therefore computed in three
steps, each for all workers: they train and query the state server until all are to exchange
(`state_server_queue`), the payloads reach the servers, and the new model reaches the workers
(`exchange`). Only calls to the state server are events: a RESET, and a query after each sequence of
iterations. The results equal those of `simulate.simulation.Simulation`, in which every message is an
event, and which simulates the jobs that `simulation.covers` refuses.
"""
