from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("orders", "0001_initial"), ("payments", "0002_history_is_immutable")]
    operations = [
        migrations.RunSQL(
            "CREATE TRIGGER order_event_is_history BEFORE UPDATE OR DELETE ON orders_orderevent"
            " FOR EACH ROW EXECUTE FUNCTION holdfast_refuse_change();",
            "DROP TRIGGER order_event_is_history ON orders_orderevent;",
        )
    ]
