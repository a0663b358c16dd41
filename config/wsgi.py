"""The WSGI application."""

import os

from django.core.wsgi import get_wsgi_application

from config.checks import insist
from config.shedding import Door

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
insist()
application = Door(get_wsgi_application())
