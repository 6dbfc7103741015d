"""The first version of the tables."""

from typing import Any, ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates the tables."""

    initial = True

    dependencies: ClassVar[list[Any]] = []

    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=64, unique=True)),
                ("job", models.CharField(db_index=True, max_length=64)),
                ("run", models.CharField(max_length=64)),
                ("started", models.FloatField(db_index=True)),
                ("ended", models.FloatField(null=True)),
                ("reason", models.CharField(default="", max_length=200)),
                ("num_workers", models.IntegerField()),
                ("epsilon", models.FloatField(null=True)),
                ("slowest_iterations", models.IntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.FloatField()),
                ("kind", models.CharField(max_length=32)),
                ("rank", models.IntegerField(null=True)),
                ("round", models.IntegerField(null=True)),
                ("text", models.CharField(max_length=300)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="events", to="server.run"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Round",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rank", models.IntegerField()),
                ("round", models.IntegerField()),
                ("finished", models.FloatField()),
                ("device", models.CharField(max_length=200)),
                ("host", models.CharField(max_length=200)),
                ("local_iterations", models.IntegerField()),
                ("samples", models.BigIntegerField()),
                ("seconds", models.FloatField()),
                ("compute", models.FloatField()),
                ("wait", models.FloatField()),
                ("exchange", models.FloatField()),
                ("bytes_sent", models.BigIntegerField()),
                ("bytes_received", models.BigIntegerField()),
                ("accuracy", models.FloatField(null=True)),
                ("accuracy_round", models.IntegerField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="rounds", to="server.run"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("run", "rank", "round"), name="one_report_per_round")],
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rank", models.IntegerField()),
                ("device", models.CharField(max_length=200)),
                ("host", models.CharField(max_length=200)),
                ("last_seen", models.FloatField()),
                ("last_round", models.IntegerField()),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="workers", to="server.run"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("run", "rank"), name="one_worker_per_rank")],
            },
        ),
    ]
