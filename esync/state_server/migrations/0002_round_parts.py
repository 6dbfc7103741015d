"""Add the further results of evaluations."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Rounds from before have none."""

    dependencies: ClassVar = [("server", "0001_initial")]
    operations: ClassVar = [migrations.AddField("round", "parts", models.JSONField(default=dict))]
