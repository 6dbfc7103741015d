"""Runs say which metric they are evaluated by; those of before, by test accuracy."""

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the metric's name and goal to the runs."""

    dependencies: ClassVar[list[Any]] = [("server", "0001_history")]

    operations: ClassVar[list[Any]] = [
        migrations.AddField("Run", "metric", models.CharField(default="accuracy", max_length=60)),
        migrations.AddField("Run", "goal", models.CharField(default="max", max_length=3)),
    ]
