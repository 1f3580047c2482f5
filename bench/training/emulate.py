"""torch.distributed over an emulated link (links/emulated.py), which holds back collectives and messages.

A collective runs over loopback first, so it waits for the slowest rank; then its bytes enter the queue. What is called
in C++ is not seen: DDP's own all-reduce is replaced by a hook.
"""

import functools
import threading

import torch
import torch.distributed as dist
from links.emulated import Link


def _ring(ranks, size):
    """(bytes that a rank sends, dependent messages) of an all-reduce of `size` bytes."""
    return 2 * (ranks - 1) * size / ranks, 2 * (ranks - 1)


def _cost(name, ranks, tensors):
    """The same of a collective of torch.distributed, from its first arguments."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    if name == "all_reduce":
        return _ring(ranks, sizes[0])
    if name == "all_to_all_single":
        return (ranks - 1) * sizes[1] / ranks, 1
    return (ranks - 1) * sizes[0], ranks - 1  # all_gather: everybody's values travel around the ring


class Held:
    """A collective that ends over loopback and then, later, over the link."""

    def __init__(self, link, work, cost):
        self._future = torch.futures.Future()

        def end(done):
            link.send(*cost, lambda: _forward(done, self._future))

        work.get_future().then(end)

    def get_future(self):
        return self._future

    def wait(self, *_):
        self._future.wait()
        return True


def _forward(done, future):
    try:
        future.set_result(done.value())
    except RuntimeError as error:
        future.set_exception(error)


class HeldSend:
    """A message that starts when the link has carried it: loopback delivers it at once."""

    def __init__(self, link, size, send):
        self._started, self._work, self._error = threading.Event(), None, None
        link.send(size, 1, lambda: self._start(send))

    def _start(self, send):
        try:
            self._work = send()
        except RuntimeError as error:
            self._error = error
        self._started.set()

    def wait(self, *timeout):
        if not self._started.wait(*(one.total_seconds() for one in timeout)):
            raise RuntimeError("the emulated link is busy for longer than the timeout")
        if self._error is not None:
            raise self._error
        return self._work.wait(*timeout)


def _hold(link, name):
    real = getattr(dist, name)

    @functools.wraps(real)
    def call(*arguments, group=None, async_op=False, **options):
        cost = _cost(name, dist.get_world_size(group), [one for one in arguments if isinstance(one, torch.Tensor)])
        held = Held(link, real(*arguments, group=group, async_op=True, **options), cost)
        if async_op:
            return held
        return held.wait() and None

    setattr(dist, name, call)


def install(spec, clock=None):
    """The link of this process, which carries what it sends from now on."""
    import gradwire.torch.transport

    link = Link(spec, clock).start()
    for name in ("all_reduce", "all_to_all_single", "all_gather"):
        _hold(link, name)
    transport = gradwire.torch.transport.Transport
    send, all_reduce = transport.send, transport.all_reduce

    def held_send(self, message, rank, tag):
        size = message.numel() * message.element_size()
        return HeldSend(link, size, lambda: send(self, message, rank, tag))

    def held_all_reduce(self, values, *op):
        all_reduce(self, values, *op)
        done = threading.Event()
        link.send(*_ring(self.size, values.numel() * values.element_size()), done.set)
        done.wait()

    transport.send, transport.all_reduce = held_send, held_all_reduce
    return link


def plain_hook(_state, bucket):
    """DDP's own all-reduce, as a hook."""
    values = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(values, async_op=True).get_future().then(lambda done: done.value()[0])
