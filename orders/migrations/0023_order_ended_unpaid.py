from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the shop goes on selling while the index is built
    dependencies = [("orders", "0022_cartline_currency")]
    operations = [
        AddIndexConcurrently(
            "order",
            models.Index(
                condition=models.Q(("status__in", ["CANCELLED", "DECLINED"])),
                fields=["updated_at"],
                name="order_ended_unpaid",
            ),
        ),
    ]
