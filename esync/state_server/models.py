"""Database models of the history: runs, their workers, what each did in each round, and events.

Written by `history`, in batches, and never read for a decision. Moments are seconds since 1970,
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


class Worker(models.Model):
    """A rank of a run: where it runs, as its newest report says."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="workers")
    rank = models.IntegerField()
    device = models.CharField(max_length=200)
    host = models.CharField(max_length=200)
    last_seen = models.FloatField()
    last_round = models.IntegerField()

    class Meta:
        """One row per rank."""

        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "rank"], name="one_worker_per_rank")]


class Round(models.Model):
    """What one worker did in one round: a report."""

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

    class Meta:
        """A report that comes twice is one report."""

        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "rank", "round"], name="one_report_per_round")]


class Event(models.Model):
    """Something worth telling: a begin, an end, a restart, a replacement, another slowest worker."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="events")
    at = models.FloatField()
    kind = models.CharField(max_length=32)
    rank = models.IntegerField(null=True)
    round = models.IntegerField(null=True)
    text = models.CharField(max_length=300)
