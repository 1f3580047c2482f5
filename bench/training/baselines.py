"""What others do today, as DDP hooks over any c10d backend: blocks of int8 or int4, and a bf16 wire.

The algorithm is all-to-all, sum in fp32 in rank order, all-gather (torchft's, and gradwire's default): two roundings
for any
number of ranks, equal bytes decoded everywhere. As in gradwire's hook the work is done by one thread on a process
group of its own, in the order of the buckets, while autograd goes on.
"""

import queue
import threading

import torch
import torch.distributed as dist

BLOCK = 512


class Bf16Wire:
    """Two bytes a value, rounded to nearest even."""

    def encode(self, values):
        return values.to(torch.bfloat16).view(torch.uint8)

    def decode(self, data):
        return data.view(torch.bfloat16).to(torch.float32)


class Int8Blocks:
    """Blocks of 512: fp32 scale = largest magnitude / 127, then one signed byte a value, nearest."""

    top = 127

    def _quantize(self, values):
        blocks = values.view(-1, BLOCK)
        scale = blocks.abs().amax(1, keepdim=True) / self.top
        steps = (blocks / scale.clamp(min=1e-38)).round_().clamp_(-self.top, self.top)
        return scale, steps.to(torch.int8)

    def encode(self, values):
        scale, steps = self._quantize(values)
        return torch.cat([scale.view(torch.uint8).flatten(), steps.view(torch.uint8).flatten()])

    def decode(self, data):
        blocks = data.numel() // (4 + BLOCK)
        scale = data[: 4 * blocks].clone().view(torch.float32).view(-1, 1)
        return (data[4 * blocks :].view(torch.int8).view(-1, BLOCK) * scale).flatten()


class Int4Blocks(Int8Blocks):
    """The same with 4 bits: -7..7, two values a byte, value i beside value i + 256 of its block."""

    top = 7

    def encode(self, values):
        scale, steps = self._quantize(values)
        steps = (steps + 8).view(torch.uint8)
        packed = steps[:, : BLOCK // 2] | steps[:, BLOCK // 2 :] << 4
        return torch.cat([scale.view(torch.uint8).flatten(), packed.flatten()])

    def decode(self, data):
        blocks = data.numel() // (4 + BLOCK // 2)
        scale = data[: 4 * blocks].clone().view(torch.float32).view(-1, 1)
        packed = data[4 * blocks :].view(-1, BLOCK // 2)
        steps = torch.cat([packed & 15, packed >> 4], 1).to(torch.int8) - 8
        return (steps * scale).flatten()


class BucketThread:
    """DDP hook that does its work on one thread, bucket after bucket in DDP's order, the same on all ranks.

    work: GradBucket -> tensor of the mean gradient; it may block. What it raises comes out of backward().
    """

    def __init__(self, work):
        self.work, self.jobs = work, queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def hook(self, _state, bucket):
        """(state, GradBucket) -> Future."""
        future = torch.futures.Future()
        self.jobs.put((bucket, future))
        return future

    def _run(self):
        torch.set_num_threads(1)
        while True:
            bucket, future = self.jobs.get()
            try:
                with torch.no_grad():
                    future.set_result(self.work(bucket))
            except Exception as error:
                future.set_exception(error)
            del bucket, future  # the buffer is not held while the thread waits


class Exchange:
    """All-reduce of a bucket in a wire format; `sent_bytes` is the payload that this rank gave to the transport."""

    def __init__(self, wire):
        self.wire, self.sent_bytes = wire, 0
        self.group = dist.new_group()
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()

    def __call__(self, bucket):
        self._exchange(bucket.buffer())
        return bucket.buffer()

    def _exchange(self, values):
        length = -(-values.numel() // (self.ranks * BLOCK)) * BLOCK
        padded = torch.zeros(self.ranks * length)
        padded[: values.numel()] = values
        shards = padded.view(self.ranks, length)
        out = torch.stack([self.wire.encode(shard) for shard in shards])
        got = torch.empty_like(out)
        dist.all_to_all_single(got, out, group=self.group)
        total = torch.zeros(length)
        for rank in range(self.ranks):  # the owner adds its own values unrounded
            total += shards[rank] if rank == self.rank else self.wire.decode(got[rank])
        mine = self.wire.encode(total / self.ranks)
        every = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(every, mine, group=self.group)
        values.copy_(torch.cat([self.wire.decode(frame) for frame in every])[: values.numel()])
        self.sent_bytes += (self.ranks - 1) * 2 * mine.numel()
