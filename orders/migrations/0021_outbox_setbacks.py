from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0020_outbox_indexes")]
    operations = [
        migrations.AddField("outboxmessage", "setbacks", models.PositiveIntegerField(db_default=0, default=0)),
    ]
