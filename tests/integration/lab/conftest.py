from tests.lab.fixtures import engine, lab_hosts

__all__ = ["engine", "lab_hosts"]
