"""Timing round by round, for very many workers that exchange synchronously through servers.

No worker sees what the others send before the round ends. So a round is computed in three steps,
each for all workers: they train and ask until everybody is to exchange (`state_server_queue`), the
payloads reach the servers, and the new model reaches the workers (`exchange`). Only calls to the
state server are events: a RESET, and a query after each run of iterations. The results are those of
`simulate.simulation.Simulation`, where every message is an event, and which simulates the jobs that
`simulation.covers` refuses.
"""
