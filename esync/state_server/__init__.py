"""State server: the Django project that tells ESync's workers when to exchange; its dashboard.

`asgi` receives requests, `operations` lists the calls, `api` and `legacy_api` answer them, `jobs`
holds the coordinator of each job, `journal` makes jobs survive restarts, `history*` writes rounds
to a database and reads them back. May import `algorithms`, `config`, `coordination`,
`membership`, `reports`, `runtime`, `version` and `web`.
"""
