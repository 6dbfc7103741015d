"""State server: the Django project that tells ESync's workers when to exchange; its dashboard.

Requests come in through `serving` (the web server), `wsgi`, `middleware` and `urls`; `api`,
`published` and `views` answer them. `service` holds the parts of the process: `jobs` with the
coordinator of each job, `journal`, which makes jobs survive restarts, and `history*`, which write
rounds to a database and read them back. May import `config`, `coordination`, `membership`,
`runtime`, `version` and `web`.
"""
