from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0002_history_is_immutable")]

    operations = [
        migrations.AddField(
            model_name="order",
            name="address",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
    ]
