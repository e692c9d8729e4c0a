"""A simulated fleet: one process, one SSH server on loopback, hundreds of nodes that speak the helper's protocol.

The user name of a login picks the node. Behind it stands a `StubNode`; the panel cannot tell it from a machine.

    async with Fleet(nodes=200) as fleet:
        fleet.target("node-017")
"""
