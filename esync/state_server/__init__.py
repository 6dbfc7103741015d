"""The app: jobs, and the calls that workers make."""
