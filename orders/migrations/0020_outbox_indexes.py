from django.contrib.postgres.indexes import BrinIndex
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0003_order_address")]
    operations = [
        migrations.AddIndex(
            "outboxmessage", models.Index(fields=["id"], condition=models.Q(status="DEAD"), name="outbox_dead")
        ),
        migrations.AddIndex(
            "outboxmessage", BrinIndex(fields=["finished_at"], name="outbox_finished", pages_per_range=16)
        ),
    ]
