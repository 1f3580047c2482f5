"""Where namespaces are not permitted: what a link would take, from bytes. Not a measurement; label it "computed"."""


def wire_seconds(spec, sent_bytes, rounds):
    """Seconds that a rank's link needs for its own bytes in `rounds` dependent messages.

    A lower bound: no slow start, no collisions at the receiver, sending and receiving overlap completely.
    """
    seconds = rounds * spec.rtt / 2
    if spec.rate is not None:
        seconds += 8 * sent_bytes / spec.goodput
    return seconds


def step_seconds(spec, local_seconds, sent_bytes, rounds):
    """A step measured without a limit (`local_seconds`), then its bytes: nothing overlaps, so an upper bound of
    overlap."""
    return local_seconds + wire_seconds(spec, sent_bytes, rounds)
