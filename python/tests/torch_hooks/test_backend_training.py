"""Programs that never heard of gradwire train over its backend by one word: losses as over Gloo, and fewer bytes."""

import gradwire.torch
import pytest
import torch
import torch.distributed as dist
from ranks import run
from torch.nn.parallel import DistributedDataParallel as DDP

torch2 = pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch 1.13 lacks it, or its Gloo does")
STEPS, RATE = 40, 2e-3


def model():
    torch.manual_seed(1)
    width = 384
    layers = [torch.nn.Linear(32, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 8))


def batch(rank, step):
    """A task in which the loss falls."""
    x = torch.randn(32, 32, generator=torch.Generator().manual_seed(1000 * step + rank))
    weights = torch.randn(32, 8, generator=torch.Generator().manual_seed(5))
    return x, torch.tanh(x @ weights / 4)


def train(net, optimizer, rank, *, step_of=None):
    losses = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        (step_of or optimizer.step)()
        losses.append(loss.item())
    return losses


def with_ddp(rank, size):
    net = DDP(model())
    return train(net, torch.optim.AdamW(net.parameters(), lr=RATE), rank)


def with_zero(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = DDP(model())
    return train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=RATE), rank)


def with_fsdp1(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    strategy = ShardingStrategy.FULL_SHARD
    net = FullyShardedDataParallel(model(), sharding_strategy=strategy, device_id=torch.device("cpu"))
    return train(net, torch.optim.AdamW(net.parameters(), lr=RATE), rank)


def with_fsdp2(rank, size):
    from torch.distributed.fsdp import fully_shard

    net = model()
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    fully_shard(net)
    return train(net, torch.optim.AdamW(net.parameters(), lr=RATE), rank)


def with_hsdp(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    gradwire.torch.set_default_error(1e-3)
    net, mesh = model(), init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicas", "shards"))
    fully_shard(net, mesh=mesh)
    losses = train(net, torch.optim.AdamW(net.parameters(), lr=RATE), rank)
    groups = [] if dist.get_backend() == "gloo" else [mesh.get_group(name) for name in mesh.mesh_dim_names]
    return losses, [gradwire.torch.backend_totals(group) for group in groups]


def with_sharded_optimizer(rank, size):
    """As Megatron and DeepSpeed do: one buffer of gradients, whose buckets are reduced and scattered while others are,
    an optimizer of this rank's shards, and a gather of the parameters."""
    net = model()
    params = list(net.parameters())
    buckets, lengths = [params[:2], params[2:]], []
    values, gradients, shards = [], [], []
    for bucket in buckets:
        length = -(-sum(p.numel() for p in bucket) // size) * size
        flat, grad, at = torch.zeros(length), torch.zeros(length), 0
        for p in bucket:
            flat[at : at + p.numel()] = p.detach().view(-1)
            p.data, p.grad = flat[at : at + p.numel()].view_as(p), grad[at : at + p.numel()].view_as(p)
            at += p.numel()
        shard = torch.nn.Parameter(flat.view(size, -1)[rank].clone())
        shard.grad = torch.zeros_like(shard)
        lengths.append(length)
        values.append(flat), gradients.append(grad), shards.append(shard)
    optimizer = torch.optim.AdamW(shards, lr=RATE)
    losses = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        for grad in gradients:
            grad.zero_()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        works = [
            dist.reduce_scatter_tensor(shard.grad, grad, op=dist.ReduceOp.AVG, async_op=True)
            for shard, grad in zip(reversed(shards), reversed(gradients))
        ]
        for work in works:
            work.wait()
        optimizer.step()
        works = [
            dist.all_gather_into_tensor(flat, shard.detach(), async_op=True) for flat, shard in zip(values, shards)
        ]
        for work in works:
            work.wait()
        losses.append(loss.item())
    return losses


def training(rank, size, kind):
    gradwire.torch.set_default_error(1e-3)
    losses = kind(rank, size)
    return losses, None if dist.get_backend() == "gloo" else gradwire.torch.backend_totals()


@pytest.mark.parametrize(
    "kind",
    [
        with_ddp,
        with_zero,
        *(pytest.param(one, marks=torch2) for one in (with_fsdp1, with_fsdp2, with_sharded_optimizer)),
    ],
)
def test_by_one_word(kind):
    plain, compressed = (run(training, 2, kind, backend=name) for name in ("gloo", "gradwire"))
    for rank in range(2):
        (theirs, _), (ours, totals) = plain[rank], compressed[rank]
        assert theirs[0] == ours[0] and theirs[-1] < 0.7 * theirs[0]
        assert abs(ours[-1] - theirs[-1]) < 0.02 * theirs[0]
        assert totals["compressed_count"] >= STEPS - 1 and totals["sent_size"] < 0.45 * totals["full_size"]


@torch2
def test_replicas_of_shards():
    plain, compressed = (run(with_hsdp, 4, backend=name) for name in ("gloo", "gradwire"))
    for rank in range(4):
        assert abs(compressed[rank][0][-1] - plain[rank][0][-1]) < 0.02 * plain[rank][0][0]
        for totals in compressed[rank][1]:  # of replicas and of shards
            assert totals["compressed_count"] >= STEPS - 1 and totals["sent_size"] < 0.45 * totals["full_size"]
