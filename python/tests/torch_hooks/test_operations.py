"""Operations outside DDP's gradients: all_reduce(), DiLoCo-like outer steps, FSDP2, THC."""

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path

import gradwire.torch
import pytest
import torch
import torch.distributed as dist
from gradwire import _structs
from gradwire.torch import _pool
from gradwire.torch.communicator import _PLANS_MAX
from ranks import run
from test_ddp import batch, digest, model
from torch.nn.parallel import DistributedDataParallel as DDP


def nmse(found, exact):
    return ((found - exact).square().sum() / exact.square().sum()).item()


def test_structs_of_the_runtime_are_compared_by_name(monkeypatch):
    fields = dict(_structs.gw_exchange_run._fields_)
    order = ["values", "result", "scale", "flags", "step_index"]  # two of one size change places
    swapped = type("gw_exchange_run", (ctypes.Structure,), {"_fields_": [(name, fields[name]) for name in order]})
    monkeypatch.setattr(_structs, "gw_exchange_run", swapped)
    with pytest.raises(ImportError, match="gw_exchange_run.step_index is at byte 20"):
        _pool._open()


def test_an_old_runtime_library_cannot_be_imported(tmp_path):
    """ImportError says what it lacks, as for the other libraries."""
    for library in Path(_pool.native.path).parent.glob("*.*"):
        if library.name != "libgradwire-runtime.so":
            (tmp_path / library.name).symlink_to(library)
    for source, missing in (
        ("int x;", "gw_runtime_open, gw_runtime_thread_count"),
        ("void gw_runtime_open(void) {}", "gw_runtime_thread_count"),
    ):
        (tmp_path / "stub.c").write_text(source)
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", tmp_path / "libgradwire-runtime.so", tmp_path / "stub.c"], check=True
        )
        found = subprocess.run(
            [sys.executable, "-c", "import gradwire.torch"],
            env={**os.environ, "GRADWIRE_LIBRARY_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
        )
        last = found.stderr.strip().splitlines()[-1]
        assert last.startswith("ImportError: ") and f"it has no {missing}" in last


def values_of(rank, seed, n):
    return torch.randn(n, generator=torch.Generator().manual_seed(100 * seed + rank))


def mixed(rank, size):
    tensors = [values_of(rank, 1, 30000).view(100, 300), values_of(rank, 2, 5000), torch.full((7,), rank + 1)]
    gradwire.torch.all_reduce(tensors, mean=False)
    gradwire.torch.all_reduce(tensors[1:2])
    exact = [sum(values_of(r, 1, 30000) for r in range(size)), sum(values_of(r, 2, 5000) for r in range(size))]
    errors = [nmse(tensor.flatten(), e) for tensor, e in zip(tensors, exact)]
    return [tensor.tolist() for tensor in tensors], errors


def test_all_reduce_of_several_dtypes():
    found = run(mixed, 3)
    assert found[0][0] == found[1][0] == found[2][0]
    assert found[0][0][2] == [6] * 7
    assert all(0 < error < 5e-3 for error in found[0][1])


def averaged(rank, size, with_optimizer):
    net = model(seed=rank)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.7)
    communicator = gradwire.torch.Communicator(optimizer=optimizer if with_optimizer else None, small_len=1)
    before = torch.cat([p.detach().reshape(-1).clone() for p in net.parameters()])
    communicator.all_reduce(net.parameters(), params=net.parameters())
    communicator.close()
    dist.all_reduce(before)
    found = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    return nmse(found, before / size), digest(net), all(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_parameters_are_averaged_in_place(with_optimizer):
    found = run(averaged, 2, with_optimizer)
    assert found[0][1] == found[1][1]
    assert all(error < 5e-3 and requires_grad for error, _, requires_grad in found.values())


def varying(rank, size):
    communicator = gradwire.torch.Communicator(small_len=1)
    errors = []
    for n in [*range(1000, 1020 + _PLANS_MAX), 1000, 1001]:
        values = values_of(rank, 8, n)
        communicator.all_reduce(values, mean=False)
        errors.append(nmse(values, sum(values_of(r, 8, n) for r in range(size))))
    kept = len(communicator._plans), communicator.engine.call(lambda: len(communicator.engine.plans))
    sent = communicator.engine.stats().sent_size
    communicator.close()
    return max(errors), kept, sent


def test_lengths_that_change_do_not_fill_the_memory():
    for error, kept, sent in run(varying, 2).values():
        assert error < 5e-3 and sent > 0
        assert kept == (_PLANS_MAX, _PLANS_MAX)


TAKEN = {
    "complex64": lambda values: torch.complex(values, 2 * values),
    "complex128": lambda values: torch.complex(values, 2 * values).to(torch.complex128),
    "complex32": lambda values: torch.view_as_complex(values.half().view(-1, 2)),
    "conjugate": lambda values: torch.complex(values, 2 * values).conj(),
    "negative": lambda values: torch.complex(2 * values, values).conj().imag,
    "bf16": lambda values: values.bfloat16(),
    "fp16": lambda values: values.half(),
    "fp64": lambda values: values.double(),
    "int16": lambda values: (100 * values).to(torch.int16),
    "int8": lambda values: (9 * values.clamp(-3, 3)).to(torch.int8),
    "scalar": lambda values: values[0].clone().reshape(()),
    "empty": lambda values: values[:0].view(0, 3),
    "gaps": lambda values: torch.stack([values, values]).t()[:, 0],
    "transposed": lambda values: values.view(20, -1).t(),
    "channels_last": lambda values: values.view(2, 3, 20, 50).contiguous(memory_format=torch.channels_last),
    "negated_rows": lambda values: values.view(20, -1).flip(0).t(),
    "leaf": lambda values: torch.nn.Parameter(values.clone()),
    "result": lambda values: torch.nn.Parameter(values.clone()) * 1,
    "multi_view": lambda values: torch.nn.Parameter(values.clone()).view(2, -1).unbind(0)[1],
    "inference": lambda values: _inference(values),
}


def _inference(values):
    with torch.inference_mode():
        return values.clone()


def taking(rank, size, small_len):
    communicator = gradwire.torch.Communicator(small_len=small_len, nmse=1e-6)
    errors = {}
    for name, make in TAKEN.items():
        tensor = make(values_of(rank, 4, 6000))
        exact = sum(make(values_of(r, 4, 6000)).detach().to(torch.complex128) for r in range(size)) / 2
        if not (tensor.is_floating_point() or tensor.is_complex()):
            exact = exact.real.floor()
        communicator.all_reduce([tensor])
        found = tensor.detach().to(torch.complex128)
        scatter = torch.zeros(tensor.numel() // 2, dtype=tensor.dtype) if tensor.numel() % 2 == 0 else None
        errors[name] = [((found - exact).abs().square().sum() / exact.abs().square().sum().clamp(min=1e-30)).item()]
        if scatter is not None:
            values = make(values_of(rank, 4, 6000))
            communicator.reduce_scatter(scatter, values, mean=True)
            part = exact.reshape(2, -1)[rank]
            difference = (scatter.to(torch.complex128) - part).abs().square().sum()
            errors[name].append((difference / part.abs().square().sum().clamp(min=1e-30)).item())
        errors[name].append(tensor.requires_grad)
    totals, summary, step = communicator.report.totals(), communicator.report.summary(), communicator.step
    communicator.check()
    communicator.close()
    return errors, totals, summary, step


@pytest.mark.parametrize("small_len", [1, 1 << 20])
def test_tensors_that_are_taken(small_len):
    """Of every type, order and kind, compressed and plain; with numbers of the report."""
    for errors, totals, summary, step in run(taking, 2, small_len).values():
        for name, (*found, requires_grad) in errors.items():
            assert all(error < 3e-5 for error in found), (name, found)
            assert requires_grad == (name in ("leaf", "result", "multi_view"))
        assert step == 2 * len(TAKEN) - 1  # a scalar is not scattered
        assert (totals["full_size"] > 1e5) == (totals["sent_size"] > 1e4) == (small_len == 1)
        assert totals["plain_size"] > 1e5 and ("% of the bytes" in summary) == (small_len == 1)


def ordering(rank, size):
    """Tensors of equal sizes that lie in memory in other orders on each rank."""
    communicator = gradwire.torch.Communicator(small_len=1, nmse=1e-6)
    values = [values_of(r, 5, 6000).view(2, 3, 20, 50) for r in range(size)]
    mine = values[rank].contiguous(memory_format=torch.channels_last) if rank else values[rank].clone()
    communicator.all_reduce(mine, mean=False)
    odd = torch.zeros(60, 100).t() if rank else torch.zeros(100, 60)
    odd.copy_(values[rank].view(100, 60))
    communicator.all_reduce([odd], mean=False)
    communicator.close()
    return nmse(mine, sum(values)), nmse(odd, sum(values).view(100, 60)), mine.stride()


def test_memory_orders_that_differ_between_ranks():
    found = run(ordering, 2)
    assert all(error < 3e-5 for *errors, _ in found.values() for error in errors)
    assert found[1][-1] == (3000, 1, 150, 3)


def _broken(error):
    yield torch.ones(20)
    raise error


REFUSED = {  # what rank 1 gives, and what all say of it
    "bool": (lambda: [torch.ones(20), torch.ones(20) > 0], TypeError, "tensor 1 is of bool, which is not added up"),
    "none": (lambda: [torch.ones(20), None], TypeError, "tensor 1 is None, not a tensor"),
    "nothing": (lambda: None, TypeError, "takes tensors, not NoneType"),
    "number": (lambda: [1.5], TypeError, "tensor 0 is float, not a tensor"),
    "expanded": (lambda: torch.ones(1).expand(20), ValueError, "tensor 0 has elements that share memory"),
    "windows": (lambda: torch.ones(22).as_strided((10, 3), (2, 1)), ValueError, "share memory"),
    "sparse": (lambda: torch.eye(4).to_sparse(), TypeError, "tensor 0 is sparse_coo"),
    "meta": (lambda: torch.ones(20, device="meta"), TypeError, "on the device meta"),
    "generator": (lambda: _broken(MemoryError("no more memory")), MemoryError, "no more memory"),
    "count": (lambda: [torch.ones(20)] * 3, ValueError, "all_reduce(mean=True) of 3 tensors: float32 20, float32"),
    "length": (lambda: [torch.ones(20), torch.ones(3)], ValueError, "2 tensors: float32 20, float32 3"),
    "dtype": (lambda: [torch.ones(20), torch.ones(20).int()], ValueError, "float32 20, int32 20"),
}


def refusing(rank, size, small_len):
    communicator = gradwire.torch.Communicator(small_len=small_len)
    raised = {}
    for name, (make, kind, _) in REFUSED.items():
        given = make() if rank == 1 else [torch.ones(20), torch.ones(20)]
        if name in ("count", "length", "dtype") or rank != 1:
            kind = ValueError
        with pytest.raises(kind) as caught:
            communicator.all_reduce(given)
        assert rank == 1 or all((one == 1).all() for one in given)
        raised[name] = str(caught.value)
    other = (lambda t: communicator.all_reduce(t, mean=False), lambda t: communicator.reduce_scatter(t[:10], t))
    for name, call in zip(("sum", "scatter"), other):
        with pytest.raises(ValueError) as caught:
            (call if rank == 1 else communicator.all_reduce)(torch.ones(20))
        raised[name] = str(caught.value)
    with pytest.raises(ValueError) as caught:
        communicator.reduce_scatter(torch.ones(10), torch.ones(20 + rank))
    raised["share"] = str(caught.value)
    comm, operation = communicator.reduce_scatter_comm(), dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM
    with pytest.raises(ValueError) as caught:
        comm(torch.ones(10), torch.ones(20), dist.group.WORLD, operation)
    raised["operation"] = str(caught.value)
    good = values_of(rank, 6, 5000)
    communicator.all_reduce(good, mean=False)  # it goes on
    step = communicator.step
    communicator.close()
    return raised, nmse(good, sum(values_of(r, 6, 5000) for r in range(size))), step


@pytest.mark.parametrize("small_len", [1, 1 << 20])
def test_bad_arguments_of_one_rank_raise_on_all_before_anything_is_sent(small_len):
    for rank, (raised, error, step) in run(refusing, 2, small_len, timeout_s=600).items():
        for name, (_, _, why) in REFUSED.items():
            assert why in raised[name], name
            assert rank == 1 or "rank 1" in raised[name], name
        for name in ("sum", "scatter"):
            assert "the ranks differ" in raised[name] and f"rank {1 - rank} has" in raised[name]
        assert "output.numel() values for each of 2 ranks: they are float32 21" in raised["share"]
        assert "is not SUM or AVG" in raised["operation"]
        assert error < 5e-3 and step == 1


def in_place(rank, size):
    """The output is a part of the values; a cached communicator, and one tensor twice."""
    communicator = gradwire.torch.Communicator(small_len=1, nmse=1e-6, piece_len=4096)
    values = values_of(rank, 7, 20000)
    communicator.reduce_scatter(values[5000:15000], values)
    exact = sum(values_of(r, 7, 20000) for r in range(size)).view(2, -1)[rank]
    twice = values_of(rank, 8, 8000)
    communicator.all_reduce([twice[:6000], twice[2000:]], mean=False)
    communicator.close()
    return nmse(values[5000:15000], exact), nmse(twice, sum(values_of(r, 8, 8000) for r in range(size)))


def test_tensors_that_overlap():
    assert all(error < 3e-5 for errors in run(in_place, 2).values() for error in errors)


def diloco(rank, size, with_optimizer):
    net = model(seed=rank)
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    options = {"small_len": 1, "piece_len": 4096, "debug": True}
    communicator = gradwire.torch.Communicator(optimizer=outer if with_optimizer else None, **options)
    inner = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for round in range(3):
        before = [p.detach().clone() for p in net.parameters()]
        for step in range(4):
            x, y = batch(rank, 10 * round + step)
            inner.zero_grad()
            torch.nn.functional.mse_loss(net(x), y).backward()
            inner.step()
        params = list(net.parameters())
        with torch.no_grad():
            for p, start in zip(params, before):
                p.grad = start - p
                p.copy_(start)
        communicator.all_reduce([p.grad for p in params], params=params)
        outer.step()
    sent, mismatches = communicator.engine.stats().sent_size, communicator.engine.mismatches
    communicator.close()
    return digest(net), sent, mismatches


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_outer_steps(with_optimizer):
    found = run(diloco, 2, with_optimizer)
    assert found[0][0] == found[1][0]
    assert all(sent > 0 and mismatches == 0 for _, sent, mismatches in found.values())


def scattering(rank, size, n):
    communicator = gradwire.torch.Communicator(small_len=1, piece_len=4096, nmse=1e-4)
    output = torch.zeros(n)
    communicator.reduce_scatter(output, values_of(rank, 3, n * size))
    exact = sum(values_of(r, 3, n * size) for r in range(size)).view(size, n)[rank]
    communicator.close()
    return nmse(output, exact)


@pytest.mark.parametrize("n", [5000, 4096, 97])
def test_reduce_scatter(n):
    assert all(0 <= error < 1e-3 for error in run(scattering, 3, n).values())


def scattering_to_parameters(rank, size, small_len):
    communicator = gradwire.torch.Communicator(small_len=small_len, piece_len=4096, nmse=1e-4)
    values = [torch.nn.Parameter(values_of(r, 3, 1000 * size)) for r in range(size)]
    exact = sum(value.detach() for value in values).view(size, 50, 20)[rank]
    errors = []
    for output in (torch.nn.Parameter(torch.zeros(50, 20)), torch.nn.Parameter(torch.zeros(20, 50).t())):
        communicator.reduce_scatter(output, values[rank])
        errors.append(nmse(output.detach(), exact))
        errors.append(0.0 if output.requires_grad and output.is_leaf else 1.0)
    communicator.close()
    return max(errors)


@pytest.mark.parametrize("small_len", [1, 1 << 20])
def test_reduce_scatter_to_parameters(small_len):
    assert all(error < 1e-3 for error in run(scattering_to_parameters, 2, small_len).values())


def fsdp(rank, size, kind):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net = model(width=96)
    reference = model(width=96)
    if kind == "scatter":
        mesh = init_device_mesh("cpu", (size,))
        communicator = gradwire.torch.Communicator(mesh.get_group(), small_len=1, nmse=1e-5)
    else:  # replicas of shards: the hook is the reduction between replicas
        mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicas", "shards"))
        communicator = gradwire.torch.Communicator(mesh["replicas"].get_group(), small_len=1, nmse=1e-5)
        mesh = mesh["shards"]
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    for layer in net:
        if not isinstance(layer, torch.nn.Linear):
            continue
        if kind == "scatter":
            layer.set_custom_reduce_scatter(communicator.reduce_scatter_comm())
            layer.set_force_sum_reduction_for_comms(True)
        else:
            layer.set_all_reduce_hook(communicator.all_reduce_hook())
    x, y = batch(rank, 0)
    torch.nn.functional.mse_loss(net(x), y).backward()
    for r in range(size):
        x, y = batch(r, 0)
        (torch.nn.functional.mse_loss(reference(x), y) / size).backward()
    errors = [nmse(p.grad.full_tensor(), q.grad) for p, q in zip(net.parameters(), reference.parameters())]
    sent = communicator.engine.stats().sent_size
    communicator.close()
    return max(errors), sent


@pytest.mark.parametrize(
    "shard_len, piece_len", [(1, 16), (1 << 18, 16), (1 << 19, 17), ((1 << 20) - 1, 17), (1 << 20, 18)]
)
def test_length_of_pieces(shard_len, piece_len):
    settings = gradwire.torch.CodecOptions().settings([])
    assert settings.piece_len_of(shard_len) == 1 << piece_len
    assert gradwire.torch.CodecOptions(piece_len=4096).settings([]).piece_len_of(shard_len) == 4096


def pieces(rank, size):
    communicator = gradwire.torch.Communicator(small_len=1, debug=True)
    values = values_of(rank, 3, 300_000)
    exact = sum(values_of(r, 3, 300_000) for r in range(size))
    communicator.all_reduce([values], mean=False)
    (plan,) = communicator._plans.values()
    found = plan.exchange.info.layout.piece_count, nmse(values, exact)
    communicator.close()
    return found


def test_a_share_is_several_messages():
    for count, error in run(pieces, 2).values():
        assert count == 6 and 0 < error < 5e-3  # two shares of 150,000 values


@pytest.mark.skipif(torch.__version__ < "2.9", reason="FSDP2 needs a newer torch")
@pytest.mark.parametrize("kind", ["scatter", "replicas"])
def test_fsdp2(kind):
    for error, sent in run(fsdp, 4, kind).values():
        assert error < 1e-3 and sent > 0


def thc(rank, size, bits, feedback):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    ddp = DDP(net)
    state, hook = gradwire.torch.thc_hook(optimizer, bits=bits, error_feedback=feedback, small_len=256)
    ddp.register_comm_hook(state, hook)
    losses = []
    for _ in range(30):
        x, y = batch(rank, 0)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    saved = state.state_dict()
    state.close()
    total = sum(error.abs().sum().item() for error in saved["errors"].values())
    return digest(net), losses, state.sent_size, total, sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize("bits,feedback", [(4, True), (4, False), (2, True)])
def test_thc(bits, feedback):
    found = run(thc, 4, bits, feedback)
    assert len({value[0] for value in found.values()}) == 1
    for _, losses, _, total, _ in found.values():
        assert losses[-1] < 0.8 * losses[0]
        assert (total > 0) == feedback
    padded = 30 * 1024 * -(-found[0][4] // 1024)  # in whole blocks
    sent = sum(value[2] for value in found.values())
    assert sent < 1.05 * 3 * padded * (bits + 8) / 8  # indices to owners, lanes of 8 bits from them, norms, heads


def test_the_example():
    """examples/torch_ddp.py as torchrun starts it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = Path(__file__).resolve().parents[3] / "examples" / "torch_ddp.py"
    ranks = []
    for rank in range(2):
        settings = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "STEPS": 50}
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", **{name: str(v) for name, v in settings.items()}}
        ranks.append(subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert "step 50, loss" in outputs[0] and "% of the bytes" in outputs[0] and not outputs[1]


def means(rank, size):
    communicator = gradwire.torch.Communicator()
    found = []
    for dtype, value in ((torch.uint8, 200), (torch.int8, 100), (torch.int32, 2**31 - 5), (torch.float16, 60000)):
        tensor = torch.full((3,), value, dtype=dtype)
        communicator.all_reduce(tensor)
        found.append(tensor.tolist() == [value] * 3)
    communicator.close()
    return found


def test_means_whose_sums_are_out_of_range():
    for found in run(means, 2).values():
        assert all(found)
