"""Limited links for measurements: one network namespace a rank, joined by a switch, with a rate and a round-trip time.

    network.py      makes namespaces, veth pairs and limits, and always removes them: `with Network(4, spec) as net:`
    link_spec.py    "1gbit", "100mbit+20ms", "unlimited" and the qdisc parameters that make them
    machines.py     several ranks in each namespace: machines that share a link
    namespaces.py   names, creation and removal of namespaces; what earlier runs left behind
    delay_switch.c  the switch where a link has a round-trip time (the kernel's netem is not needed)
    ranks.py        runs one command per rank, with a time limit and outputs
    probe.py        what the links really are: throughput and round-trip time through plain sockets
    mpi_launch.py   command lines of Open MPI and MPICH whose ranks live in the namespaces
    permission.py   whether namespaces are permitted; a user namespace where they need one
    emulated.py     where they are not permitted: ranks on loopback whose transfers are held back, and labelled so
    computed.py     what a link would take, from bytes

No interface, route or address of the machine is touched: switch and ranks live in namespaces of their own, and their
subnet exists only there. `python3 -m links --help` (from bench/) is the command.

Topology, for two ranks (pN and ethN are the two ends of a veth pair):

    rank 0 [eth0: limit out] ---- [p0: limit in] switch [p1: limit in] ---- [eth0: limit out] rank 1

A token bucket on eth0 limits what a rank sends, one on pN what it receives: full duplex at the rate, as a NIC has it.
"""
