"""Adds the round of the run to the reports of workers that count their own exchanges."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """See above."""

    dependencies: ClassVar = [("server", "0001_initial")]
    operations: ClassVar = [migrations.AddField("round", "run_round", models.IntegerField(null=True))]
