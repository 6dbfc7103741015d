"""A search over moments of death.

`schedule` says what is drawn, `world` what happens then: to `processes` on their machines, and by
the `launcher`. The `invariants` must hold all the while; `search` runs many schedules.
"""
