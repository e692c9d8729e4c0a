"""The node's side: sent over each connection, run from memory by the node's own Python, nothing installed.

Standard library only, Python 3.8 or newer. It is imported as `pilothouse_helper` on a node and under its full name in
tests, so its modules import each other relatively. It decides one thing only: fencing (which starts come too late).
"""

SCHEMA = 1
