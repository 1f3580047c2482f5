"""Maps against the steps of torch's own optimizers: no quantum moves a parameter further than said."""

import inspect

import gradwire
import gradwire.torch.optimizers as optimizers
import numpy as np
import pytest
import torch
from gradwire import maps

LEN = 4000
BITS = 10


class Lion(torch.optim.Optimizer):
    pass


class OwnStep(torch.optim.Adam):
    def step(self, closure=None):
        return super().step(closure)


def has(cls, name):
    return name in inspect.signature(cls.__init__).parameters


def variants():
    """Every optimizer with the options that this torch has."""
    adam, adamw, nadam, radam = (getattr(torch.optim, name) for name in ("Adam", "AdamW", "NAdam", "RAdam"))
    adamax, adadelta = torch.optim.Adamax, torch.optim.Adadelta
    plain = [
        (nadam, {"lr": 2e-3}),
        (nadam, {"lr": 2e-3, "weight_decay": 0.1, "momentum_decay": 0.2}),
        (nadam, {"lr": 2e-3, "weight_decay": 0.1, "decoupled_weight_decay": True}),
        (radam, {"lr": 1e-3}),
        (radam, {"lr": 1e-3, "weight_decay": 0.1, "betas": (0.5, 0.9)}),
        (radam, {"lr": 1e-3, "weight_decay": 0.1, "decoupled_weight_decay": True}),
        (adamax, {"lr": 2e-3, "weight_decay": 0.01}),
        (adadelta, {"lr": 1.0, "weight_decay": 0.01}),
        (adadelta, {"lr": 0.5, "rho": 0.5}),
    ]
    for cls in (adam, adamw, torch.optim.SGD, torch.optim.Adagrad):
        plain += [(cls, {"lr": 1e-2, "foreach": True}), (cls, {"lr": 1e-2, "fused": True})]
    plain += [(cls, {"lr": 1e-3, "foreach": True}) for cls in (nadam, adamax, adadelta)]
    if has(radam, "decoupled_weight_decay"):  # that of torch 1.13 adds no eps, and NaN to the parameters in step 1
        plain.append((radam, {"lr": 1e-3, "foreach": True}))
    if has(adamw, "fused") and has(torch.optim.SGD, "fused"):  # a learning rate of one element, torch 2
        plain.append((adamw, {"lr": torch.tensor(1e-2)}))
    return [(cls, options) for cls, options in plain if all(has(cls, name) for name in options)]


def make(cls, options, param):
    try:
        return cls([param], **options)
    except RuntimeError as error:  # fused of torch 1.13: CUDA only
        pytest.skip(str(error))


def stepped(cls, options, before, state, gradient):
    """The parameters after one step, in double."""
    param = torch.nn.Parameter(before.double())
    optimizer = make(cls, options, param)
    optimizer.state[param] = {
        name: (x.double() if torch.is_tensor(x) and x.numel() > 1 else x.clone() if torch.is_tensor(x) else x)
        for name, x in state.items()
    }
    param.grad = gradient
    optimizer.step()
    return param.detach()


def quanta(optimizer, group, param):
    state = optimizer.state.get(param, {})
    made = optimizers.family(optimizer)
    if not optimizers.is_update_known(made, state):
        return torch.zeros(LEN, dtype=torch.float64)
    described = optimizers.describe(optimizer, group, optimizers.next_step(made, state), optimizers._mu_product(state))
    arrays = {name: state[key].numpy() for name, key in optimizers._STATE[made].items() if state.get(key) is not None}
    for name in maps.Rule(described).uses:
        arrays.setdefault(name, np.zeros(LEN, np.float32))
    found = maps.Map.of(maps.Rule(described), maps.State(param=param.detach().numpy(), **arrays))
    quarter = np.where(found.bytes > 0, found.bytes.astype(float) + found.base, np.nan)
    return torch.from_numpy(np.nan_to_num(np.exp2(np.floor(quarter / 4) - 127 - BITS)))


@pytest.mark.parametrize(("cls", "options"), variants(), ids=lambda x: getattr(x, "__name__", None))
def test_one_quantum_moves_no_parameter_further(cls, options):
    torch.manual_seed(1)
    param = torch.nn.Parameter(0.1 * torch.randn(LEN))
    optimizer = make(cls, options, param)
    scale = torch.exp2(-12 * torch.rand(LEN))
    worst, cut = 0.0, 0
    for _ in range(12):
        gradient = (scale * torch.randn(LEN)).double()
        before, state = param.detach().clone(), dict(optimizer.state.get(param, {}))
        state = {k: v.clone() if torch.is_tensor(v) else v for k, v in state.items()}
        quantum = quanta(optimizer, optimizer.param_groups[0], param)
        cut += int((quantum > 0).sum())
        # With this gradient the second moment is at its least, and does not change with a small step from there.
        group = optimizer.param_groups[0]
        decoupled = cls is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
        least = (0.0 if decoupled else -group.get("weight_decay", 0.0)) * before.double()
        exact = stepped(cls, options, before, state, least)
        small = 1e-6 * quantum  # with larger ones the second moment moves, too, which the bound does not contain
        slope = (stepped(cls, options, before, state, least + small) - exact) / small
        num = exact - slope * least
        share = quantum * slope.abs() / (2.0**-BITS * num.abs())
        worst = max(worst, float(share[quantum > 0].max()) if (quantum > 0).any() else 0.0)
        param.grad = gradient.float()
        optimizer.step()
    if cls is torch.optim.NAdam and not optimizers._nadam_has_known_step():
        assert cut == 0  # torch 1.13, whose first updates are others
        return
    assert cut > 3 * LEN
    assert 0.25 < worst < 1 + 2e-5, worst


def test_optimizers_without_a_bound():
    param = torch.nn.Parameter(torch.zeros(4, 4))
    lion, own = Lion([param], {}), OwnStep([param])
    assert optimizers.family(lion) is None and "sign" in optimizers.why_unbounded(lion)
    assert optimizers.family(own) is None and "step() of its own" in optimizers.why_unbounded(own)
    assert "LBFGS" not in optimizers.why_unbounded(torch.optim.LBFGS([param]))
    assert "ASGD is not known" in optimizers.why_unbounded(torch.optim.ASGD([param]))
    for name, word in (("Muon", "matrix"), ("Adafactor", "row and column")):
        if hasattr(torch.optim, name):
            one = getattr(torch.optim, name)([param])
            assert optimizers.family(one) is None and word in optimizers.why_unbounded(one)


def test_state_of_nadam_is_read():
    """With a smaller product more is dropped, where the parameter is most of the update."""
    theta, m, v = (np.full(3, x, np.float32) for x in (0.1, 1e-4, 1e-6))
    state = gradwire.State(param=theta, m=m, v=v)
    top = [
        maps.scan(gradwire.Rule(gradwire.Optimizer(kind="nadam", lr=1e-3, step=3, mu_product=x)), state)
        for x in (1.0, 0.2)
    ]
    assert top[0] < top[1]
