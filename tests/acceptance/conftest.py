from tests.lab.fixtures import engine, lab_hosts, module_lab, panel

__all__ = ["engine", "lab_hosts", "module_lab", "panel"]
