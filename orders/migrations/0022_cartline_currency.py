from django.db import migrations, models

from orders.models import base_currency


class Migration(migrations.Migration):
    dependencies = [("orders", "0021_outbox_setbacks")]
    operations = [
        migrations.AlterField("cart", "currency", models.CharField(default=base_currency, max_length=3)),
        migrations.AddField("cartline", "currency", models.CharField(db_default="", default="", max_length=3)),
        # Lines without one (and those that older processes still write) wait for the catalog's next answer.
        migrations.RunSQL(
            """
            UPDATE orders_cartline line SET currency = product.currency
            FROM orders_productsnapshot product WHERE product.sku = line.sku
            """,
            migrations.RunSQL.noop,
        ),
    ]
