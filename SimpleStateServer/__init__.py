"""The state server's Django project: the published HTTP calls in front of `esync.coordination.coordinator`."""
