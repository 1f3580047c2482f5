#!/usr/bin/env python3
"""Data-parallel training with compressed gradients, on the processors of one machine or of several:

    torchrun --nproc-per-node 2 examples/torch_ddp.py

What differs from plain DDP is marked. Needs torch and `pip install ./python`.
"""

import os

import gradwire.torch  # <--
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "200"))

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 64))
ddp = DistributedDataParallel(net, bucket_cap_mb=4)  # <-- small buckets: transfer starts early in the backward pass
optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
state, hook = gradwire.torch.ddp_hook(optimizer, compress="always")  # <-- "auto" decides by itself, after eight steps
ddp.register_comm_hook(state, hook)  # <--

torch.manual_seed(2 + rank)
for step in range(STEPS):
    x = torch.randn(32, 64)
    loss = torch.nn.functional.mse_loss(ddp(x), x.flip(1) * x.sign())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and (step + 1) % 50 == 0:
        print(f"step {step + 1}, loss {loss.item():.4f}; {state.report.summary()}")
state.check()  # raises if the last step failed on any rank
state.close()
dist.destroy_process_group()
