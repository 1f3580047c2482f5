"""What a hook is given as optimizer and options: wrappers, bounds that cannot be kept, compression that is lost."""

import logging

import fake_device
import gradwire.torch
import pytest
import torch
from gradwire.torch.optimizers import family
from ranks import run
from test_ddp import OPTIONS, batch, digest, model
from test_planned import ORDER, plan
from torch.nn.parallel import DistributedDataParallel as DDP


class Own(torch.optim.SGD):
    """One that maps are not known for: its step() may do anything."""

    def step(self, closure=None):
        return super().step(closure)


class Wrapper(torch.optim.Optimizer):
    """As Accelerate's: does not call Optimizer.__init__."""

    def __init__(self, inner, attribute="optimizer"):
        setattr(self, attribute, inner)
        self._attribute = attribute

    param_groups = property(lambda self: getattr(self, self._attribute).param_groups)
    state = property(lambda self: getattr(self, self._attribute).state)

    def step(self, closure=None):
        return getattr(self, self._attribute).step(closure)


def wrapper_of(name, module, attribute, inner):
    return type(name, (Wrapper,), {"__module__": module})(inner, attribute)


class Messages(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []
        logging.getLogger("gradwire").addHandler(self)
        logging.getLogger("gradwire").setLevel(logging.INFO)

    def emit(self, record):
        self.texts.append(record.getMessage())


# ---- what is refused ----


def refusing(rank, size):
    net = model()

    def sgd(**options):
        return torch.optim.SGD(net.parameters(), lr=0.1, **options)

    adam, own = torch.optim.AdamW(net.parameters()), Own(net.parameters(), lr=0.1)
    groups = [{"params": [p]} for p in net.parameters()]
    groups[1]["alpha"] = 1.0
    rmsprop = torch.optim.RMSprop(groups)
    cases = {
        "not Sequential; give the optimizer, not the model": (net, {}),
        "an empty list": ([], {}),
        "entry 0, must be a torch.optim.Optimizer, not Parameter": (net.parameters(), {}),
        "not NoneType": (None, {}),
        "no option 'tolerence_bits'; did you mean 'tolerance_bits'": (adam, {"tolerence_bits": 3}),
        "tolerance_bits=99; it is 1 to 23": (adam, {"tolerance_bits": 99}),
        "tolerance_bits=True": (adam, {"tolerance_bits": True}),
        "noise=3; it is 0, or 2^-8 to 1": (adam, {"noise": 3}),
        "nmse=0; it is above 0": (own, {"nmse": 0}),
        "nmse=0.01: it counts for": (adam, {"nmse": 0.01}),
        "threads=0; it is 1 to": (adam, {"threads": 0}),
        "small_len=-1; it is an integer from 0": (adam, {"small_len": -1}),
        "report_every=0; it is an integer from 1": (adam, {"report_every": 0}),
        "dampening=1 in group 0 of SGD": (sgd(momentum=0.9, dampening=1.0), {}),
        "alpha=1 in group 1 of RMSprop": (rmsprop, {}),
        "tolerance_bits=14: no bound for each parameter is known for Own": (own, {"tolerance_bits": 14}),
        "known for Own; give nmse=0.001, too": ([own, adam], {"tolerance_bits": 8, "quantum_mode": "carried"}),
        "quantum_mode='derived' needs an optimizer that maps are known for, not Own": (
            [own, adam],
            {"quantum_mode": "derived"},
        ),
        "noise=0.125: a noise limit needs": ([own, adam], {"noise": 0.125}),
        "dgc needs torch.optim.SGD without momentum, not AdamW": (adam, {"codec": "dgc"}),
        "dgc needs torch.optim.SGD without momentum, not momentum=0.9 in group 0": (
            sgd(momentum=0.9),
            {"codec": "dgc"},
        ),
        "signsgd needs torch.optim.SGD": (adam, {"codec": "signsgd"}),
        "signum needs torch.optim.SGD without momentum, not momentum": (sgd(momentum=0.9), {"codec": "signum"}),
        "no option 'tolerance_bits'; there are": (adam, {"codec": "topk", "tolerance_bits": 3}),
        "no option 'ration'; did you mean 'ratio'": (adam, {"codec": "topk", "ration": 3}),
    }
    wrong = {}
    for text, (optimizer, options) in cases.items():
        try:
            gradwire.torch.ddp_hook(optimizer, **options)[0].close()
            wrong[text] = "taken"
        except (TypeError, ValueError) as error:
            if text not in str(error):
                wrong[text] = str(error)
    for optimizer, options in ((sgd(dampening=1.0), {}), (sgd(), {"codec": "dgc"}), (sgd(), {"codec": "signum"})):
        gradwire.torch.ddp_hook(optimizer, **options)[0].close()
    with pytest.raises(ValueError, match="tolerance_bits=8: .* without an optimizer"):
        gradwire.torch.Communicator(tolerance_bits=8)
    with pytest.raises(TypeError, match="no option 'quantum_mode'"):
        gradwire.torch.Communicator(quantum_mode="explicit")
    return wrong


def test_errors_name_option_value_range_and_group():
    assert run(refusing, 1)[0] == {}


def refused_on_one(rank, size):
    optimizer = torch.optim.SGD(model().parameters(), lr=0.1, momentum=0.9, dampening=1.0 if rank else 0.0)
    with pytest.raises((RuntimeError, ValueError)) as caught:
        gradwire.torch.ddp_hook(optimizer)
    return str(caught.value)


def test_an_optimizer_that_one_rank_alone_refuses():
    found = run(refused_on_one, 2)
    assert "rank 1 failed to make its hook" in found[0] and "dampening=1" in found[1]


# ---- wrappers ----


def wrapped(rank, size):
    messages, found = Messages(), {}
    kinds = {
        "none": lambda inner: inner,
        "accelerate": lambda inner: wrapper_of("AcceleratedOptimizer", "accelerate.optimizer", "optimizer", inner),
        "lightning": lambda inner: wrapper_of("LightningOptimizer", "lightning.pytorch", "_optimizer", inner),
        "local": lambda inner: wrapper_of("PostLocalSGDOptimizer", "torch.distributed.optim", "optim", inner),
        "other": Wrapper,
    }
    for kind, make in kinds.items():
        net = model(width=64)
        inner = torch.optim.AdamW(net.parameters(), lr=1e-3)
        optimizer = make(inner)
        ddp = DDP(net)
        state, hook = gradwire.torch.ddp_hook(optimizer, **OPTIONS)
        ddp.register_comm_hook(state, hook)
        for step in range(4):
            inner.zero_grad()
            x, y = batch(rank, step)
            torch.nn.functional.mse_loss(ddp(x), y).backward()
            optimizer.step()
        state.check()
        found[kind] = digest(net), state.report.totals()["sent_size"], state.engine.settings.codec.quantum_mode
        state.close()
    return found, messages.texts


def test_wrappers():
    found = run(wrapped, 2)
    assert {kind: one[0] for kind, one in found[0][0].items()} == {kind: one[0] for kind, one in found[1][0].items()}
    kinds, texts = found[0]
    assert kinds["accelerate"] == kinds["lightning"] == kinds["local"] == kinds["none"]
    assert kinds["none"][2] == "derived" and kinds["other"][2] == "carried"
    assert sum("a wrapper of AdamW" in text for text in texts) == 1 and not found[1][1]


# ---- a list of known and other optimizers ----


def bounded(rank, size, kind):
    """How far the gradients of the first layer's optimizer, as the hook gives them, move parameters, in units of the
    tolerance; and the error of the others."""
    messages = Messages()
    net = model(width=256)
    params = list(net.parameters())
    first, rest = params[::2], params[1::2]
    first[0].data.mul_(1e-2)  # bounds that an error of 1e-3 does not keep by itself
    known = (torch.optim.SGD if kind != "unknown" else Own)(first, lr=0.05)
    other = (Own if kind != "known" else torch.optim.SGD)(rest, lr=0.05)
    ddp = DDP(net, bucket_cap_mb=100)
    options = {**OPTIONS, "small_len": 1}
    state, hook = gradwire.torch.ddp_hook([known, other], **options)
    ddp.register_comm_hook(state, hook)
    worst, error, square = 0.0, 0.0, 0.0
    for step in range(3):
        exact = [torch.zeros_like(p) for p in params]
        for one in range(size):
            x, y = batch(one, step)
            loss = torch.nn.functional.mse_loss(net(x), y)
            for total, gradient in zip(exact, torch.autograd.grad(loss, params)):
                total += gradient / size
        for p in params:
            p.grad = None
        x, y = batch(rank, step)
        torch.nn.functional.mse_loss(ddp(x), y).backward()
        for p, right in zip(params, exact):
            if any(p is q for q in first):
                moved = 0.05 * (p.grad - right).abs()
                # float's own error of the mean, which exact has too
                limit = p.detach().abs() * 2.0**-14 + 1e-6 * 0.05 * right.abs().max()
                worst = max(worst, (moved / limit).max().item())
            else:
                error += (p.grad - right).square().sum().item()
                square += right.square().sum().item()
        known.step()
        other.step()
    state.check()
    totals = state.report.totals()
    quantum_mode = {plan.settings.codec.quantum_mode for plan in state.engine.plans.values()}
    state.close()
    return digest(net), worst, error / square, totals["sent_size"], quantum_mode, messages.texts


def test_known_optimizers_keep_their_bound_beside_others():
    found = {kind: run(bounded, 2, kind) for kind in ("known", "mixed", "unknown")}
    for ranks in found.values():
        assert ranks[0][0] == ranks[1][0]
    known, mixed, unknown = (found[kind][0] for kind in ("known", "mixed", "unknown"))
    assert known[1] < 4 and mixed[1] < 4 < unknown[1]
    assert 0 < mixed[2] < 4e-3
    assert (known[4], mixed[4], unknown[4]) == ({"derived"}, {"derived", "carried"}, {"carried"})
    assert not known[5] and "those of SGD keep theirs" in mixed[5][0] and "Own" in unknown[5][0]


def mixed(rank, size, staged, planned, small_len=100):
    """Digest, bytes and quantum mode of a run whose buckets have parameters of both kinds."""
    if staged:
        fake_device.install()
    net = model()
    params = list(net.parameters())
    made = [Own(params[::2], lr=0.05), torch.optim.AdamW(params[1::2], lr=1e-3)]
    ddp = DDP(net)
    options = {**OPTIONS, "tolerance_bits": 12, "nmse": 1e-3, "small_len": small_len}
    if planned:
        options = {"plan": plan((2, "mine", {"codec": "gradwire"}), (4, "mine", {"codec": "gradwire"})), "model": net}
    state, hook = gradwire.torch.ddp_hook(made, **options)
    ddp.register_comm_hook(state, hook)
    for step in range(4):
        for one in made:
            one.zero_grad()
        with ddp.no_sync():
            torch.nn.functional.mse_loss(*(ddp(batch(rank, 50 + step)[0]), batch(rank, 50 + step)[1])).backward()
        x, y = batch(rank, step)
        torch.nn.functional.mse_loss(ddp(x), y).backward()
        for one in made:
            one.step()
    state.check()
    totals = state.report.totals()
    limits = {p.settings.limits.tolerance_bits for p in state.engine.plans.values() if p.settings.maps}
    state.close()
    return (
        digest(net),
        totals["mismatches"],
        totals["plain_size"] > 0,
        limits,
        sum(len(one.rooms) for one in state.codecs.gcomp),
    )


def planned_bounds(rank, size):
    """Levels and tolerance of a plan's buckets, each of one optimizer; whether one that cannot be kept is refused."""
    net = model()
    named = dict(net.named_parameters())
    first = [named[name] for name in ORDER[:2]]
    rest = [named[name] for name in ORDER[2:]]
    made = [torch.optim.AdamW(first), Own(rest, lr=0.1)]
    document = plan((2, "gcomp-t12"), (4, "mine", {"codec": "gradwire"}))
    settings, original = [], gradwire.torch.CodecOptions.settings
    gradwire.torch.CodecOptions.settings = lambda self, of: settings.append(original(self, of)) or settings[-1]
    state, _ = gradwire.torch.ddp_hook(made, plan=document, model=net, tolerance_bits=10, nmse=1e-2)
    state.close()
    found = [(one.codec.quantum_mode, one.limits.tolerance_bits if one.maps else None) for one in settings[1:]]
    try:
        gradwire.torch.ddp_hook(made, plan=plan((2, "fp32"), (4, "gcomp-t12")), model=net)
    except ValueError as error:
        return found, "tolerance_bits=12: no bound" in str(error)
    return found, False


def test_mixed_buckets_on_a_device_and_in_a_plan():
    there, staged = run(mixed, 3, False, False), run(mixed, 3, True, False)
    assert there[0] == there[1] == there[2] and there == staged
    assert there[0][1:] == (0, False, {12}, 1)
    small = run(mixed, 2, True, False, 200)  # the biases, 131 values, travel plain
    assert small[0] == small[1] and small[0][1:] == (0, True, set(), 1)
    found = run(planned_bounds, 1)[0]
    assert found == ([("derived", 12), ("carried", None)], True)
    planned = run(mixed, 2, False, True)
    assert planned[0] == planned[1] and planned[0][1:] == (0, False, {14}, 2)


# ---- compression that is lost ----

SCALER = """
class GradScaler:
    def __init__(self, scale):
        self.factor = scale

    def get_scale(self):
        return self.factor

    def scale(self, loss):
        return loss * self.factor

    def step(self, optimizer):
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.grad.div_(self.factor)
        return self._maybe_opt_step(optimizer)

    def _maybe_opt_step(self, optimizer):
        return optimizer.step()
"""


def losing(rank, size, kind):
    messages = Messages()
    module = {"__name__": "torch.amp.grad_scaler"}  # torch 1.13 has one for CUDA only
    exec(SCALER, module)
    scaler = module["GradScaler"](65536.0)
    net = model(width=256)
    ddp = DDP(net)
    params = [p.detach().clone() for p in net.parameters()] if kind == "copies" else list(net.parameters())
    optimizer = torch.optim.AdamW(params, lr=1e-3)
    given = {"given": scaler, "none": 1.0}.get(kind)
    state, hook = gradwire.torch.ddp_hook(optimizer, **OPTIONS, **({"loss_scale": given} if given else {}))
    ddp.register_comm_hook(state, hook)
    if kind in ("rebuilt", "copies"):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    assert family(optimizer) == "adam"
    sizes = []
    for step in range(8):
        x, y = batch(rank, step)
        loss = torch.nn.functional.mse_loss(ddp(x), y)
        (scaler.scale(loss) if kind in ("given", "found", "none") else loss).backward()
        if kind in ("given", "found", "none"):
            scaler.step(optimizer)
        elif kind != "accumulated" or step % 2:
            optimizer.step()
        optimizer.zero_grad() if kind != "accumulated" or step % 2 else None
        sizes.append(state.report.totals()["sent_size"])
    state.check()
    sent = state.report.totals()["sent_size"] - sizes[3]
    state.close()
    return digest(net), sent, messages.texts


def test_lost_compression_is_found_or_said_once():
    found = {
        kind: run(losing, 2, kind) for kind in ("given", "found", "none", "plain", "rebuilt", "copies", "accumulated")
    }
    for ranks in found.values():
        assert ranks[0][0] == ranks[1][0]
    sent = {kind: ranks[0][1] for kind, ranks in found.items()}
    texts = {kind: ranks[0][2] for kind, ranks in found.items()}
    assert sent["found"] == pytest.approx(sent["given"], rel=0.02) and sent["none"] > 1.2 * sent["given"]
    assert [text for text in texts["found"] if "GradScaler" in text] and not texts["given"]
    assert not texts["plain"] and not texts["accumulated"] and not texts["none"]
    assert len(texts["rebuilt"]) == 1 and "makes no step()" in texts["rebuilt"][0]
    assert len(texts["copies"]) == 1 and "100 % of the values" in texts["copies"][0]


def scaled_at_times(rank, size, kind):
    """Gradients of a pass whose loss no scaler has scaled, after others that one has: how far from plain DDP's."""
    module = {"__name__": "torch.amp.grad_scaler"}
    exec(SCALER, module)
    scaler = module["GradScaler"](65536.0)
    found = []
    for compress in ("never", "always"):
        net = model(width=128)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        ddp = DDP(net)
        state, hook = gradwire.torch.ddp_hook(optimizer, **{**OPTIONS, "compress": compress})
        ddp.register_comm_hook(state, hook)
        for step in range(6):
            x, y = batch(rank, step)
            loss = torch.nn.functional.mse_loss(ddp(x), y)
            optimizer.zero_grad()
            if step < 5 and (kind == "stops" or step % 2 == 0):
                scaler.scale(loss).backward()
                scaler.step(optimizer)
            else:
                loss.backward()
                optimizer.step()
        state.check()
        state.close()
        found.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
    return float((found[0] - found[1]).norm() / found[0].norm())


@pytest.mark.parametrize("kind", ["stops", "alternates"])
def test_a_scaler_counts_where_it_scales(kind):
    for error in run(scaled_at_times, 2, kind).values():
        assert error < 0.1  # of rounding; 50 where a scale was taken that is not there
