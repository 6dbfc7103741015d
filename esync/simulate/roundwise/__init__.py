"""Timing only, round by round: very many workers that exchange synchronously through parameter servers.

Within a round nobody notices what the others send until it ends. So a round is worked out in three steps, each for all
workers: they compute and ask until everybody is to exchange (`asking`), the payloads reach the servers, the new model
reaches the workers (`exchange`). Only calls to the state server are events: a RESET, and a question after each run of
iterations. What comes out is what `simulation.Simulation` gives, which has every message as an event; that one goes on
simulating what `scope` leaves out.
"""
