from tests.browser.conftest import chromium
from tests.lab.fixtures import engine, lab_hosts, module_lab, panel

__all__ = ["chromium", "engine", "lab_hosts", "module_lab", "panel"]
