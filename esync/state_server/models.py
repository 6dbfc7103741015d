"""Database models of the history: runs, the rounds of their workers, and events.

`history` writes them in batches. No decision depends on them. Times are seconds since 1970,
durations seconds.
"""

from typing import ClassVar

from django.db import models


class Run(models.Model):
    """One training under a job's name."""

    key = models.CharField(max_length=64, unique=True)
    job = models.CharField(max_length=64, db_index=True)
    run = models.CharField(max_length=64)
    started = models.FloatField(db_index=True)
    ended = models.FloatField(null=True)
    reason = models.CharField(max_length=200, default="")
    num_workers = models.IntegerField()
    epsilon = models.FloatField(null=True)
    slowest_iterations = models.IntegerField()
    metric = models.CharField(max_length=60, default="accuracy")  # the metric of the field accuracy of its rounds
    goal = models.CharField(max_length=3, default="max")  # or min
    logged = models.JSONField(default=list)  # names in the field logged of its rounds


class Round(models.Model):
    """A worker's report of one round."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="rounds")
    rank = models.IntegerField()
    round = models.IntegerField()
    finished = models.FloatField()
    device = models.CharField(max_length=200)
    host = models.CharField(max_length=200)
    local_iterations = models.IntegerField()
    samples = models.BigIntegerField()
    seconds = models.FloatField()
    compute = models.FloatField()
    wait = models.FloatField()
    exchange = models.FloatField()
    bytes_sent = models.BigIntegerField()
    bytes_received = models.BigIntegerField()
    accuracy = models.FloatField(null=True)
    accuracy_round = models.IntegerField(null=True)
    run_round = models.IntegerField(null=True)
    logged = models.JSONField(default=dict)  # name → mean in the round
    parts = models.JSONField(default=dict)  # name → further result of the evaluation

    class Meta:
        """One row per worker and round, even if a report comes twice."""

        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "rank", "round"], name="one_report_per_round")]


class Event(models.Model):
    """An event such as a begin, an end, a restart, a replacement, or another slowest worker."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="events")
    at = models.FloatField()
    kind = models.CharField(max_length=32)
    rank = models.IntegerField(null=True)
    round = models.IntegerField(null=True)
    text = models.CharField(max_length=300)
