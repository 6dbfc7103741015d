"""The app: jobs, and the views that workers talk to."""
