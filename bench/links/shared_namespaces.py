"""Machines of several ranks: a Network has one namespace and one limited link a machine, and its ranks share them.
Among themselves they talk over the namespace's loopback, which has no limit."""


class Machines:
    """In place of a Network, for run_ranks(): `each` ranks in every namespace of `net`, consecutive ones together."""

    def __init__(self, net, each):
        self.net, self.each = net, each
        self.ranks, self.spec = net.ranks * each, net.spec

    def inside(self, rank):
        return self.net.inside(rank // self.each)

    def settings(self):
        return self.net.settings()

    def local(self, rank):
        """What torchrun says of a rank's machine; for run_ranks(extra=)."""
        return {"LOCAL_RANK": str(rank % self.each), "LOCAL_WORLD_SIZE": str(self.each)}
