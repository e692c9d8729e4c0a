"""A small data centre out of namespaces: hosts with a real OpenSSH server, their links, and a real engine to run.

Start with `tests.lab.hosts.Lab`; in pytest take the fixtures of `tests.lab.fixtures`;
by hand `python -m tests.lab up 2`.
"""
