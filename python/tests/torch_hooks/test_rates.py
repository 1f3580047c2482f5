"""The learning rate that counts: what rounding leaves in a momentum meets the rates of later steps."""

import logging
import math
import types
import warnings

import gradwire.gcomp
import gradwire.maps
import gradwire.torch
import numpy as np
import pytest
import torch
from gradwire.torch.forecast import Forecast, horizon
from gradwire.torch.optimizers import _STATE, ParamRegistry, Place, family
from gradwire.torch.options import CodecOptions
from gradwire.torch.rates import Rates, peaks_of
from ranks import run
from test_ddp import OPTIONS, batch, model
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import lr_scheduler

BITS = 14


def sgd(lr=0.1, momentum=0.9, groups=1):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(3))]} for _ in range(groups)]
    return torch.optim.SGD(groups, lr=lr, momentum=momentum)


# ---- schedulers ----

SCHEDULERS = {
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: min(1, step / 20) * 0.99**step),
    "step": lambda o: lr_scheduler.StepLR(o, 7, 0.3),
    "multistep": lambda o: lr_scheduler.MultiStepLR(o, [5, 9, 30], 2.0),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.97),
    "linear": lambda o: lr_scheduler.LinearLR(o, 1e-3, total_iters=30),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 25),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 10, 2),
    "onecycle": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=70),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, step_size_up=9),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.01, total_iters=12), lr_scheduler.CosineAnnealingLR(o, 30)], [12]
    ),
    "chain": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o, 0.1, total_iters=15), lr_scheduler.ExponentialLR(o, 0.98)]
    ),
}


def rates_of(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_forecast_is_what_the_scheduler_then_does(name):
    def trajectory(optimizer, scheduler):
        for _ in range(69):
            yield rates_of(optimizer)
            optimizer.step()
            scheduler.step()

    optimizer = sgd(groups=2)
    plain = list(trajectory(optimizer, SCHEDULERS[name](optimizer)))
    optimizer = sgd(groups=2)
    scheduler = SCHEDULERS[name](optimizer)
    forecast, found = Forecast(scheduler), []
    count = horizon(0.5)
    for step, rates in enumerate(trajectory(optimizer, scheduler)):
        found.append(rates)
        forecast.look()
        for group in range(2):
            ahead = [plain[step + i][group] * 0.5**i for i in range(1, count + 1) if step + i < len(plain)]
            if step + count < len(plain):
                assert forecast.peak(group, 0.5) == pytest.approx(max(ahead), rel=1e-12)
    assert found == plain and forecast.error is None  # looking ahead has changed nothing


class Remembering(lr_scheduler._LRScheduler):
    """Keeps what it has done, in an object of its own."""

    def __init__(self, optimizer):
        self.done = []
        super().__init__(optimizer)

    def get_lr(self):
        self.done.append(1)
        return [0.01 * len(self.done) for _ in self.optimizer.param_groups]


class Curious(lr_scheduler._LRScheduler):
    """Looks at what a copy has not: parameters, from its third step on or at once."""

    def __init__(self, optimizer, first):
        self.first = first
        super().__init__(optimizer)

    def get_lr(self):
        if self.last_epoch >= self.first:
            return [1e-3 * len(group["params"]) for group in self.optimizer.param_groups]
        return [1e-3 for _ in self.optimizer.param_groups]


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_with_things_of_its_own():
    optimizer = sgd()
    scheduler = Remembering(optimizer)
    forecast = Forecast(scheduler)
    for step in range(1, 5):
        forecast.look()
        assert forecast.peak(0, 0.5) == pytest.approx(max(0.01 * (step + k) * 0.5**k for k in range(1, 20)))
        assert len(scheduler.done) == step and optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * step)
        scheduler.step()


@pytest.mark.filterwarnings("ignore:Detected call")
def test_a_scheduler_that_cannot_be_computed_ahead():
    with pytest.raises(TypeError, match="Curious cannot be computed ahead .'params'.; give peak_lr= instead"):
        Rates([optimizer := sgd()], schedulers=Curious(optimizer, 1))
    optimizer = sgd(lr=0.4)
    scheduler = Curious(optimizer, 5)
    optimizer.param_groups[0]["lr"] = 0.4
    rates, group = Rates([optimizer], schedulers=scheduler), optimizer.param_groups[0]
    with pytest.warns(UserWarning, match="cannot be computed ahead .'params'.: the largest seen counts"):
        assert rates.look() == {id(group): 0.4} and not rates.is_known(group)
    group["lr"] = 0.01
    assert rates.look() == {id(group): 0.4}


def test_a_forecast_is_followed_not_made_again():
    optimizer = sgd()
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    forecast, started = Forecast(scheduler), []
    start = forecast._start
    forecast._start = lambda: (started.append(1), start())
    for _ in range(50):
        forecast.look()
        forecast.peak(0, 0.9)
        forecast.look()
        optimizer.step()
        scheduler.step()
    assert not started
    optimizer.param_groups[0]["lr"] = 0.7  # by hand
    forecast.look()
    assert len(started) == 1


@pytest.mark.filterwarnings("ignore")
def test_several_scheduler_steps_an_update():
    """Accelerate steps a scheduler once a rank: rates come sooner than the steps of a copy say."""
    optimizer = sgd()
    scheduler = lr_scheduler.LinearLR(optimizer, 1e-3, total_iters=100)
    forecast = Forecast(scheduler)
    forecast.peak(0, 0.9)
    for steps in (4, 1):
        at = scheduler.last_epoch + steps
        for _ in range(steps):
            scheduler.step()
        now = optimizer.param_groups[0]["lr"]
        forecast.look()
        later = [0.1 * (1e-3 + 0.999 * min(100, at + k) / 100) * 0.9 ** math.ceil(k / steps) for k in range(1, 400)]
        assert forecast.peak(0, 0.9) == pytest.approx(max(later)) and max(later) > now


def test_a_scheduler_that_only_lowers_and_wrappers():
    optimizer = sgd(lr=0.3)
    group = optimizer.param_groups[0]
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
    rates = Rates([optimizer], schedulers=types.SimpleNamespace(scheduler=plateau))
    group["lr"] = 0.1
    assert rates.look() == {id(group): 0.3} and not rates.is_known(group)  # others may raise it
    with pytest.raises(TypeError, match="SimpleNamespace is not a scheduler of torch.optim; give peak_lr"):
        Rates([optimizer], schedulers=types.SimpleNamespace())
    with pytest.raises(ValueError, match="ExponentialLR is of an optimizer that the hook does not have"):
        Rates([optimizer], schedulers=lr_scheduler.ExponentialLR(sgd(), 0.9))
    with pytest.raises(ValueError, match="optimizer 0 has two"):
        Rates([optimizer], schedulers=[plateau, lr_scheduler.ExponentialLR(optimizer, 0.9)])


def test_a_rate_that_the_scheduler_did_not_set():
    optimizer = sgd(lr=0.01)
    group = optimizer.param_groups[0]
    rates = Rates([optimizer], schedulers=lr_scheduler.StepLR(optimizer, 10))
    assert rates.look() == {id(group): 0.01} and rates.is_known(group)
    group["lr"] = 0.5
    with pytest.warns(UserWarning, match="is 0.5, above what its scheduler was to set"):
        assert rates.look() == {id(group): 0.5}


# ---- rates that are stated or seen ----


def test_stated_rates():
    optimizers = [sgd(lr=0.1), sgd(lr=0.1)]
    groups = [optimizer.param_groups[0] for optimizer in optimizers]
    rates = Rates(optimizers, peaks_of([0.5, torch.tensor(0.2)]))
    assert rates.look() == {id(groups[0]): 0.5, id(groups[1]): pytest.approx(0.2)}
    assert all(map(rates.is_known, groups))
    optimizers[0].add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))], "lr": 0.05})
    assert list(rates.look().values()) == [0.5, 0.05, pytest.approx(0.2)]
    assert not rates.is_known(optimizers[0].param_groups[1])  # none was stated for it
    every = Rates(optimizers, peaks_of(torch.tensor(0.7)))
    optimizers[1].add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))], "lr": 0.05})
    assert list(every.look().values()) == [pytest.approx(0.7)] * 4
    groups[1]["lr"] = 0.3
    with pytest.warns(UserWarning, match="group 0 of optimizer 1 is 0.3, above peak_lr=0.2"):
        assert rates.look()[id(groups[1])] == 0.3
    for bad, text in ((0.0, "peak_lr is 0"), (math.inf, "peak_lr is inf"), ([0.1, -1.0], "of group 1 is -1")):
        with pytest.raises(ValueError, match=text):
            peaks_of(bad)
    with pytest.raises(TypeError, match="peak_lr='fast' is no number"):
        peaks_of("fast")
    with pytest.raises(ValueError, match="has 1 rates for 4 parameter groups"):
        Rates(optimizers, peaks_of([1.0]))


def test_the_largest_rate_seen(caplog):
    optimizer = sgd(lr=0.1)
    group = optimizer.param_groups[0]
    rates = Rates([optimizer])
    assert rates.look() == {id(group): 0.1} and not rates.is_known(group)
    group["lr"] = 0.01
    with caplog.at_level(logging.INFO, "gradwire"):
        assert rates.look() == {id(group): 0.1}
    assert "the learning rate is 0.01, but quanta are for 0.1" in caplog.text
    group["lr"] = 0.2
    with pytest.warns(UserWarning, match="group 0 of optimizer 0 has risen to 0.2, above all that were seen .0.1."):
        assert rates.look() == {id(group): 0.2}
    group["lr"] = 0.3
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert rates.look() == {id(group): 0.3}
    for lr in (0.0, 0.5):  # a state of an earlier version has none
        group["lr"] = lr
        resumed = Rates([optimizer])
        resumed.load_state_dict(())
        resumed.load_state_dict(rates.state_dict())
        assert resumed.look() == {id(group): max(0.3, lr)}
    warm = sgd(lr=0.4)
    lr_scheduler.LambdaLR(warm, lambda step: step / 100)  # sets the rate to 0 and leaves initial_lr
    assert Rates([warm]).look() == {id(warm.param_groups[0]): 0.4}
    other = Rates([warm], bounded=[False])
    other.look()
    warm.param_groups[0]["lr"] = 9.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # its parameters have no quanta of their own
        other.look()


# ---- what it is for ----


class Training:
    """Updates of one parameter with gradients that depend on the step alone, plain or through the codec."""

    LEN = 8192

    def __init__(self, make, schedule, compressed, first=None, options=None):
        generator = torch.Generator().manual_seed(5)
        self.scale = torch.exp(1.5 * torch.randn(self.LEN, generator=generator)) * 1e-3
        self.mean = torch.randn(self.LEN, generator=generator) * 0.3
        self.param = (torch.randn(self.LEN, generator=generator) * 0.05).requires_grad_()
        self.optimizer = make([self.param])
        group = self.optimizer.param_groups[0]
        group["lr"] = schedule[0] if first is None else first
        settings = CodecOptions(tolerance_bits=BITS, **(options or {}))
        self.registry = ParamRegistry([self.optimizer], 0, settings.rates([self.optimizer]))
        made = settings.settings([self.optimizer])
        self.limits, self.codec = made.limits, gradwire.gcomp.Codec(made.codec)
        self.sizes = []
        for step, rate in enumerate(schedule):
            group["lr"] = rate
            noise = torch.Generator().manual_seed(1000 + step)
            gradient = self.scale * (self.mean + torch.randn(self.LEN, generator=noise))
            self.param.grad = self.through_codec(gradient) if compressed else gradient
            self.optimizer.step()

    def through_codec(self, gradient):
        self.registry.look()
        table = self.registry.segments([Place(self.param, 0, self.LEN, 1)], 1.0, self.limits)
        rule = types.SimpleNamespace(struct=table._array[0].rule.contents, wire_scale=1.0)
        state = self.optimizer.state.get(self.param, {})
        arrays = {name: np.zeros(self.LEN, np.float32) for name in "mva"}
        for name, key in _STATE[family(self.optimizer)].items():
            if state.get(key) is not None:
                arrays[name] = state[key].numpy()
        made = gradwire.maps.Map.of(rule, gradwire.maps.State(param=self.param.detach().numpy(), **arrays))
        frame = self.codec.encode(gradient.numpy(), map=made)
        self.sizes.append(len(frame) / gradient.numel() / 4)
        return torch.from_numpy(self.codec.decode(frame, map=made).copy())

    def state(self):
        found = self.optimizer.state[self.param]
        return {key: value for key, value in found.items() if torch.is_tensor(value) and value.numel() > 1}


def deviation(make, schedule, **options):
    """(median and 99 % of the parameters' distance from plain in units of 2^-t of them, largest of the state's).
    The tail above is heavy, since parameters near 0 are divisors: the largest 8 of 8192 depend on the random words."""
    plain, packed = Training(make, schedule, False), Training(make, schedule, True, **options)
    apart = (plain.param - packed.param).detach().abs()
    units = (apart / (plain.param.detach().abs() * 2.0**-BITS + 1e-12)).sort().values
    states = [((a - b).norm() / a.norm()).item() for a, b in zip(plain.state().values(), packed.state().values())]
    return units[len(units) // 2].item(), units[int(0.99 * len(units))].item(), max(states), packed.sizes


KINDS = {
    "momentum": (lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), 0.1),
    "nesterov": (lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True), 0.1),
    "rmsprop": (lambda params: torch.optim.RMSprop(params, lr=1e-3, momentum=0.9), 1e-3),
    "adam": (lambda params: torch.optim.Adam(params, lr=1e-3), 1e-3),
    "adamw": (lambda params: torch.optim.AdamW(params, lr=1e-3), 1e-3),
}
SCHEDULES = {
    "3": [1e-4] * 3 + [1.0] * 5,
    "100": [(i + 1) / 100 for i in range(100)] + [1.0] * 5,
    "restarts": [0.5 * (1 + math.cos(math.pi * (i % 20) / 20)) for i in range(45)],
    "zeros": [0.0] * 3 + [1.0, 1.0, 0.0, 0.0, 1.0],
}


def deviations(rank, size, kind, lengths):
    make, peak = KINDS[kind]
    found = {}
    for name, schedule in lengths.items():
        rates = [peak * share for share in schedule]
        found[name] = {
            "constant": deviation(make, [peak] * len(rates), first=peak),
            "seen": deviation(make, rates, first=peak),
            "stated": deviation(make, rates, options={"peak_lr": peak}),
            "unknown": deviation(make, rates),
        }
    return found


def check_deviations(found):
    for name, ways in found.items():
        median, high, state, _ = ways["constant"]
        # a rate that is known: no further from plain than the same number of steps at the largest rate
        for way in ("seen", "stated"):
            assert ways[way][0] <= 1.25 * median and ways[way][1] <= 1.5 * high and ways[way][2] <= 1.5 * state, (
                name,
                way,
            )
        # none is known, and rates rise 10,000-fold: the state is within 8 %, most parameters within 32 units
        assert ways["unknown"][2] < 0.08 and ways["unknown"][0] < max(32, 4 * median), name


@pytest.mark.parametrize("kind", KINDS)
def test_state_and_parameters_stay_near_plain_training(kind):
    check_deviations(run(deviations, 1, kind, SCHEDULES)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_up_of_1000_steps(kind):
    check_deviations(run(deviations, 1, kind, {"1000": [(i + 1) / 1000 for i in range(1000)]})[0])


def sizes(rank, size):
    found = {}
    for kind, (make, peak) in KINDS.items():
        *_, unknown = deviation(make, [peak] * 12, first=peak)
        *_, stated = deviation(make, [peak] * 12, options={"peak_lr": peak, "noise": 0.0})
        found[kind] = (unknown, stated)
    return found


def test_a_constant_rate_costs_a_point_at_most():
    for kind, (unknown, stated) in run(sizes, 1)[0].items():
        assert sum(unknown[1:]) / 11 < sum(stated[1:]) / 11 + 0.01, kind
        # of a momentum that is not there yet nothing is known: the first gradient is exact
        assert unknown[0] > 0.8 and (stated[0] < 0.5) == (kind in ("momentum", "nesterov")), kind


def limits_of(options):
    """Noise and update limit of AdamW's rule."""
    param = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.AdamW([param])
    chosen = CodecOptions(**options)
    registry = ParamRegistry([optimizer], 0, chosen.rates([optimizer]))
    registry.look()
    table = registry.segments([Place(param, 0, 8, 1)], 1.0, chosen.settings([optimizer]).limits)
    return table._array[0].rule.contents.limits


def test_limits_where_rates_are_not_known():
    tolerance, noise, update = 1, 2, 8  # src/gcomp/map_rule.h
    assert limits_of({}) == tolerance | noise
    assert limits_of({"noise": 0.0}) == tolerance | update
    assert limits_of({"noise": 0.0, "peak_lr": 1e-3}) == tolerance
    assert limits_of({"noise": 0.25, "tolerance_bits": None}) == noise


# ---- the hook ----


def warmed_up(rank, size, kind, compress, options):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5, momentum=0.9)
    if kind == "adamw":
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-6)
    peak = 1e4 * optimizer.param_groups[0]["lr"]
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 3 else 1e4)
    given = {"peak_lr": {"peak_lr": peak}, "scheduler": {"scheduler": scheduler}}.get(options, {})
    ddp = DDP(net)
    state, hook = gradwire.torch.ddp_hook(optimizer, **{**OPTIONS, "compress": compress, **given})
    ddp.register_comm_hook(state, hook)
    for step in range(4):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(ddp(x), y).backward()
        optimizer.step()
        scheduler.step()
    moments = [value for one in optimizer.state.values() for value in one.values() if torch.is_tensor(value)]
    state.close()
    return torch.cat([value.flatten() for value in moments if value.numel() > 1]).numpy()  # tensors do not travel


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["momentum", "adamw"])
def test_a_warm_up_under_the_hook(kind):
    plain = run(warmed_up, 2, kind, "never", "")[0]
    for options, limit in (("peak_lr", 0.005), ("scheduler", 0.005), ("", 0.08)):
        found = run(warmed_up, 2, kind, "always", options)
        assert np.array_equal(found[0], found[1])
        assert np.linalg.norm(found[0] - plain) < limit * np.linalg.norm(plain), options


def refused(rank, size):
    optimizer = sgd()
    with pytest.raises(ValueError, match="peak_lr is -1"):
        gradwire.torch.ddp_hook(optimizer, **OPTIONS, peak_lr=-1)
    with pytest.raises(ValueError, match="an optimizer that the hook does not have"):
        gradwire.torch.ddp_hook(optimizer, **OPTIONS, scheduler=lr_scheduler.ExponentialLR(sgd(), 0.9))
    return True


def test_bad_rates_are_refused_when_the_hook_is_made():
    run(refused, 1)
