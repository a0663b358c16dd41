from django.db import migrations, models

# Payments of one order were numbered in their references only: HF-AAAAA-BBBBB, then HF-AAAAA-BBBBB.2 and so on.
NUMBERS = """
UPDATE payments_payment SET number = split_part(reference, '.', 2)::int WHERE reference LIKE '%.%';
UPDATE payments_payment SET key_used_at = created_at WHERE status <> 'NEW';
"""


class Migration(migrations.Migration):
    dependencies = [("payments", "0003_degraded_mode")]
    operations = [
        migrations.AddField("payment", "number", models.PositiveSmallIntegerField(db_default=1, default=1)),
        migrations.AddField("payment", "key_used_at", models.DateTimeField(null=True)),
        migrations.RunSQL(NUMBERS, migrations.RunSQL.noop),
        migrations.AddConstraint(
            "payment",
            models.UniqueConstraint(fields=("order_key", "number"), name="payment_number_once_per_order"),
        ),
        migrations.CreateModel(
            name="WebhookReceipt",
            fields=[
                ("event", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=100)),
                ("intent", models.CharField(blank=True, default="", max_length=255)),
                ("reference", models.CharField(blank=True, default="", max_length=100)),
                ("received_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="MoneyCheck",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("order_key", models.CharField(blank=True, default="", max_length=32)),
                ("subject", models.CharField(max_length=255)),
                ("reason", models.CharField(max_length=200)),
                ("opened_at", models.DateTimeField()),
                ("closed_at", models.DateTimeField(null=True)),
                ("closed_by", models.CharField(blank=True, default="", max_length=150)),
                ("note", models.CharField(blank=True, default="", max_length=500)),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("closed_at__isnull", True)),
                        fields=("subject",),
                        name="one_open_check_per_subject",
                    )
                ],
            },
        ),
    ]
