"""Django's settings, and the only reader of the environment.

Every value has a typed getter; what is wrong is collected and raised once as `WrongSettings`, which the entry points
turn into named lines and exit code 2. `docs/settings.md` lists the variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from controlplane import database
from controlplane.embedded import keys
from controlplane.embedded.places import Places
from controlplane.env import Reader

BASE_DIR = Path(__file__).resolve().parent.parent
_env = Reader(os.environ)

# --- what an operator sets -------------------------------------------------------------------------------------------
VAR_DIR = _env.path("VAR_DIR", BASE_DIR / "var")
PLACES = Places(VAR_DIR, os.getuid())

DEBUG = _env.flag("DEBUG", False)
BIND = _env.text("BIND", "127.0.0.1")
PORT = _env.number("PORT", 8000, 1, 65535)
LAUNCHER = _env.one_of("LAUNCHER", "node", ("node", "stub"))
PG_BIN = _env.text("PG_BIN")
DROP_ROOT = _env.one_of("DROP_ROOT", "auto", ("auto", "userns", "uid"))
PROCESS = _env.text("PROCESS", "manage")
KEYS_DIR = _env.text("KEYS_DIR")

EMBEDDED_DATABASE = not _env.text("DATABASE_URL")
EMBEDDED_BROKER = not _env.text("BROKER_URL")
DATABASE_URL = _env.url("DATABASE_URL", PLACES.database_url, database.POSTGRES_SCHEMES)
BROKER_URL = _env.url("BROKER_URL", PLACES.broker_url, database.BROKER_SCHEMES)
CHANNEL_URL = _env.url("CHANNEL_URL", BROKER_URL, database.BROKER_SCHEMES)

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ALLOWED_HOSTS = _env.words("ALLOWED_HOSTS", _LOOPBACK)
# Addresses of reverse proxies whose X-Forwarded-For and X-Forwarded-Proto are believed; nobody's otherwise.
TRUSTED_PROXIES = _env.words("TRUSTED_PROXIES")
TRUSTED_ORIGINS = _env.words("TRUSTED_ORIGINS")
for _origin in TRUSTED_ORIGINS:
    if urlsplit(_origin).scheme not in ("http", "https") or urlsplit(_origin).path:
        _env.refuse("TRUSTED_ORIGINS", f"{_origin!r} is no origin.", "Write it like https://panel.example.org.")


def _secret(name: str, kept_in: Path, generate: Callable[[], str]) -> str:
    """The value from the environment, else from the file in VAR_DIR, which the supervisor makes at its first start."""
    value = _env.text(name)
    if value or _env.is_refused(name):
        return value
    if PROCESS == "supervisor":
        return keys.kept(kept_in, generate)
    if not os.access(kept_in, os.R_OK):
        _env.refuse(name, "is missing.", f"Set {name} or {name}_FILE, or let `make run` generate one in VAR_DIR.")
        return ""
    return kept_in.read_text(encoding="utf-8").strip()


SECRET_KEY = _secret("SECRET_KEY", PLACES.secret_key, keys.secret_key)
# Fernet keys for the SSH private keys in the database: the first encrypts, all decrypt, so that they can be rotated.
FIELD_KEYS = _secret("FIELD_KEYS", PLACES.field_keys, keys.field_key).replace(",", " ").split()

LANGUAGE_CODE = _env.one_of("LANGUAGE_CODE", "en", ("en", "zh-hans"))
SESSION_COOKIE_AGE = _env.number("SESSION_HOURS", 12, 1, 24 * 30) * 3600
LOG_LEVEL = _env.one_of("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
WORKER_THREADS = _env.number("WORKER_THREADS", 8, 1, 256)
_env.finish()

# --- what follows from it --------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "ninja",
    "django_htmx",
    "template_partials",
    "controlplane",
    "deployments",
    "monitoring",
]
MIDDLEWARE = [
    "controlplane.headers.security_headers",
    "django.middleware.security.SecurityMiddleware",
    "controlplane.static.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["django.templatetags.i18n", "django.templatetags.static"],
        },
    }
]

DATABASES = {"default": database.postgres(DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Database 1 of the broker's server holds counters; `local` is each process's own and serves while the server is down.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": database.redis_client_url(BROKER_URL, 1),
        "KEY_PREFIX": "pilothouse",
        "OPTIONS": {"socket_timeout": 2, "socket_connect_timeout": 2},
    },
    "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [database.redis_client_url(CHANNEL_URL)], "prefix": "pilothouse"},
    }
}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"

# Cookies are marked Secure when operators reach the panel through https; over plain loopback they could not be set.
_https = any(origin.startswith("https://") for origin in TRUSTED_ORIGINS)
CSRF_TRUSTED_ORIGINS = TRUSTED_ORIGINS
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "pilothouse_session", "pilothouse_csrf"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024

USE_TZ, TIME_ZONE = True, "UTC"
USE_I18N = True
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]

STATIC_URL = "/static/"
STATIC_ROOT = PLACES.static
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "controlplane.static.HashedWhenCollected"},
}
WHITENOISE_USE_FINDERS = True

# They tell of every task, and of rings that have expired, which is what rings do.
_CELERY_QUIET = ("worker.consumer", "worker.strategy", "worker.request", "app.trace")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "controlplane.logs.OneLine", "process": PROCESS}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        "asyncssh": {"level": "WARNING"},
        "controlplane.websocket": {"level": "WARNING"},
        # It repeats each second that the broker is away; who listens says it once.
        "channels_redis": {"level": "CRITICAL"},
        "celery.beat": {"level": "WARNING"},
        **{f"celery.{name}": {"level": "WARNING"} for name in _CELERY_QUIET},
    },
}
