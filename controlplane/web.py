"""The web process: uvicorn around our ASGI application, on a socket that it opens or was handed."""

from __future__ import annotations

import argparse
import os
import socket

import uvicorn

from controlplane.env import or_exit


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m controlplane.web", description=__doc__)
    parser.add_argument("--fd", type=int, help="an open listening socket; without it BIND and PORT are used")
    handed = parser.parse_args().fd
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    with or_exit():
        from controlplane import settings
    config = uvicorn.Config(
        "controlplane.asgi:application",
        host=settings.BIND,
        port=settings.PORT,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.TRUSTED_PROXIES),
        forwarded_allow_ips=settings.TRUSTED_PROXIES,
        ws_max_size=64 * 1024,
        timeout_graceful_shutdown=3,
    )
    uvicorn.Server(config).run(sockets=None if handed is None else [socket.socket(fileno=handed)])


if __name__ == "__main__":
    main()
