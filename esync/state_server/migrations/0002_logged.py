from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("server", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="logged",
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name="round",
            name="logged",
            field=models.JSONField(default=dict),
        ),
    ]
