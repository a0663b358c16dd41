from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("payments", "0002_history_is_immutable"),
    ]

    operations = [
        migrations.CreateModel(
            name="BreakerReport",
            fields=[
                ("process", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=10)),
                ("state", models.CharField(max_length=20)),
                ("since", models.DateTimeField()),
                ("asked_at", models.DateTimeField(null=True)),
                ("failing_since", models.DateTimeField(null=True)),
                ("healthy_since", models.DateTimeField(null=True)),
                ("failure_rate", models.FloatField(null=True)),
                ("slow_rate", models.FloatField(null=True)),
                ("window_calls", models.PositiveIntegerField(default=0)),
                ("succeeded", models.PositiveBigIntegerField(default=0)),
                ("failed", models.PositiveBigIntegerField(default=0)),
                ("not_permitted", models.PositiveBigIntegerField(default=0)),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="StaffAction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("actor", models.CharField(max_length=150)),
                ("action", models.CharField(max_length=40)),
                ("subject", models.CharField(max_length=100)),
                ("before", models.CharField(blank=True, max_length=100)),
                ("after", models.CharField(blank=True, max_length=100)),
                ("reason", models.CharField(max_length=500)),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.AddField(
            model_name="modestate",
            name="automatic_reason",
            field=models.CharField(blank=True, default="", max_length=500),
        ),
        migrations.AddField(
            model_name="modestate",
            name="automatic_since",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="modestate",
            name="entered_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="modestate",
            name="replay_paused",
            field=models.BooleanField(default=False),
        ),
        migrations.RunSQL(
            """CREATE TRIGGER staff_action_is_history BEFORE UPDATE OR DELETE ON payments_staffaction
               FOR EACH ROW EXECUTE FUNCTION holdfast_refuse_change()""",
            "DROP TRIGGER staff_action_is_history ON payments_staffaction",
        ),
    ]
