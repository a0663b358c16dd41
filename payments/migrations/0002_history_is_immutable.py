from django.db import migrations

FUNCTION = """
CREATE FUNCTION holdfast_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'history is not changed: % on %', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER mode_change_is_history BEFORE UPDATE OR DELETE ON payments_modechange
    FOR EACH ROW EXECUTE FUNCTION holdfast_refuse_change();
INSERT INTO payments_modestate (id, setting, automatic, since, reason, actor, version)
    VALUES (1, 'auto', 'NORMAL', now(), '', '', 1);
"""


class Migration(migrations.Migration):
    dependencies = [("payments", "0001_initial")]
    operations = [
        migrations.RunSQL(
            FUNCTION,
            "DROP TRIGGER mode_change_is_history ON payments_modechange; DROP FUNCTION holdfast_refuse_change();",
        )
    ]
