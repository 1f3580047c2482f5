"""THC with all workers in one process (bench/training/thc_workers.py): what is exact about lost packets, late workers
and replicas."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gradwire import thc

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from training import thc_workers  # noqa: E402

WORKERS, LEN, BLOCKS = 4, 3274, 4  # the last block has 202 values and 256 lanes
ARGUMENTS = ["--task", "digits", "--workers", "4", "--batch", "8", "--steps", "4", "--epoch", "2"]


class TinyTask:
    """3274 parameters; a batch is 8 vectors."""

    optimizer, lr = "sgd", {"sgd": 0.05}

    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def sample(self, step, rank, ranks, batch):
        source = torch.Generator().manual_seed(step)
        return torch.randn(batch, 40, generator=source), torch.randint(10, (batch,), generator=source)

    @staticmethod
    def loss(model, sample):
        return torch.nn.functional.cross_entropy(model(sample[0]), sample[1])

    def validation(self, rank, ranks):
        return [self.sample(1000, 0, 1, 16)]


def simulation(*words):
    return thc_workers.Simulation(TinyTask(), thc_workers.arguments([*ARGUMENTS, *words]))


def parameters(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


@pytest.fixture
def gradients(rng):
    return rng.standard_normal((WORKERS, LEN)).astype(np.float32)


def everything():
    return np.ones((WORKERS, BLOCKS), bool)


def sum_of_frames(codec, gradients, patterns, ranks, mode):
    """By frames with contributor sets, error memories empty."""
    frames = [
        codec.encode_frame(gradients[rank], patterns, thc.Part(rank=rank), error=np.zeros(LEN, np.float32))
        for rank in ranks
    ]
    total = thc.sum_begin(frames[0])
    for frame in frames:
        thc.sum_add(total, frame)
    return thc.decode_frame(total, mode=mode)


@pytest.mark.parametrize("returns", [False, True])
def test_a_sum_is_that_of_the_contributors(gradients, returns):
    mode, divisor = ("sum", np.float32(WORKERS)) if returns else ("mean", np.float32(1))
    options = thc_workers.options_of("thc", 4, WORKERS, 1)
    made = thc_workers.ThcSum(options, WORKERS, LEN, returns)
    whole = made.mean(gradients, 0, everything())
    patterns = made.patterns
    all_of_them = sum_of_frames(made.codec, gradients, patterns, range(WORKERS), mode) / divisor
    assert np.array_equal(whole, all_of_them)
    exact = gradients.mean(axis=0)
    assert 0 < ((whole - exact) ** 2).sum() < 0.04 * (exact**2).sum()

    late = everything()
    late[2] = False
    made = thc_workers.ThcSum(options, WORKERS, LEN, returns)
    others = sum_of_frames(made.codec, gradients, patterns, (0, 1, 3), mode) / divisor
    assert np.array_equal(made.mean(gradients, 0, late), others)

    lost = everything()
    lost[2, [0, 3]] = False  # two packets, the short one too
    made = thc_workers.ThcSum(options, WORKERS, LEN, returns)
    expected = np.concatenate([others[:1024], all_of_them[1024:3072], others[3072:]])
    assert np.array_equal(made.mean(gradients, 0, lost), expected)


def test_a_block_without_contributors_is_zero(gradients):
    made = thc_workers.ThcSum(thc_workers.options_of("thc", 4, WORKERS, 1), WORKERS, LEN, False)
    lost = everything()
    lost[:, 1] = False
    mean = made.mean(gradients, 0, lost)
    assert not mean[1024:2048].any()
    assert mean[:1024].any()


def test_plain_means(gradients):
    made = thc_workers.PlainSum(WORKERS, LEN, False)
    assert np.allclose(made.mean(gradients, 0, everything()), gradients.mean(axis=0), atol=1e-6)
    lost = everything()
    lost[1, 3] = False
    mean = made.mean(gradients, 0, lost)
    assert np.allclose(mean[:3072], gradients.mean(axis=0)[:3072], atol=1e-6)
    assert np.allclose(mean[3072:], gradients[[0, 2, 3], 3072:].mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("variant", ["thc", "fp32"])
def test_what_is_left_out_returns(rng, variant, returns):
    """Means times workers and what error memories still hold are all gradients; not so if nothing returns."""
    if variant == "thc":
        made = thc_workers.ThcSum(thc_workers.options_of("thc", 4, WORKERS, 1), WORKERS, LEN, returns)
    else:
        made = thc_workers.PlainSum(WORKERS, LEN, returns)
    network = thc_workers.Network(3, WORKERS, BLOCKS, 0.1, 1)
    sent, exact = np.zeros(LEN), np.zeros(LEN)
    for step in range(6):
        gradients = rng.standard_normal((WORKERS, LEN)).astype(np.float32)
        arrived, _ = network.draw(step)
        assert not arrived.all()
        sent += WORKERS * made.mean(gradients, step, arrived).astype(np.float64)
        made.put_back(~arrived)
        exact += gradients.sum(axis=0)
    held = sum(error for error in made.errors if error is not None)
    assert np.allclose(sent + held, exact, atol=1e-3) == returns


def test_network():
    arrived, answered = thc_workers.Network(1, 10, 50, 0.0, 3).draw(7)
    assert answered.all()
    assert sorted(arrived.sum(axis=1)) == [0] * 3 + [50] * 7
    fewer, _ = thc_workers.Network(1, 10, 50, 0.0, 2).draw(7)
    assert (fewer >= arrived).all()  # the two are among the three
    arrived, answered = thc_workers.Network(1, 10, 5000, 0.01, 0).draw(7)
    assert 0.005 < 1 - arrived.mean() < 0.015
    assert 0.005 < 1 - answered.mean() < 0.015
    assert (arrived != answered).any()


def test_fp32_is_training_with_the_whole_batch():
    made = simulation("--variant", "fp32")
    torch.manual_seed(1)
    task = TinyTask()
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(4):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / 4)
        optimizer.zero_grad()
        task.loss(model, task.sample(step, 0, 1, 8)).backward()
        optimizer.step()
    found = made.run()
    assert np.allclose(parameters(made.replicas.models[0]), parameters(model), atol=1e-5)
    assert found["nmse"] < 1e-10
    assert found["distance"] == 0.0


def test_lost_answers_and_synchronisation():
    made = simulation("--loss", "0.3")
    start = parameters(made.replicas.models[0])
    made.step(0)
    _, answered = made.network.draw(0)
    for model, got in zip(made.replicas.models, answered):
        changed = parameters(model) != start
        assert [changed[first : first + 1024].any() for first in range(0, LEN, 1024)] == got.tolist()
    made.end_epoch()
    assert made.distance > 0
    assert made.replicas.distance() > 0
    mean = np.mean([parameters(model) for model in made.replicas.models], axis=0)
    made.replicas.synchronise()
    assert np.allclose(parameters(made.replicas.models[0]), mean, atol=1e-6)
    assert len({parameters(model).tobytes() for model in made.replicas.models}) == 1

    apart, together = (simulation("--loss", "0.3", *words) for words in ([], ["--synchronise"]))
    found = apart.run(), together.run()
    assert found[0]["valid_worst"] > found[0]["valid_loss"]
    assert found[1]["valid_worst"] == pytest.approx(found[1]["valid_loss"])
    assert found[1]["distance"] > 0  # before the last synchronisation


def test_variants():
    options = {name: thc_workers.options_of(name, 4, 10, 1) for name in thc_workers.VARIANTS if name != "fp32"}
    assert {name for name in options if options[name].error_feedback} == {"thc", "uniform"}
    assert {name for name in options if options[name].transform == "plain"} == {"plain", "plain-uniform"}
    even = {name for name in options if options[name].table == tuple(range(16))}
    assert even == {"uniform", "plain-uniform"}
    for one in options.values():
        thc.Codec(one)
        assert dataclasses.replace(one, worker_max=10) == one
    for name in thc_workers.VARIANTS:
        assert simulation("--variant", name, "--stragglers", "1").run()["train_loss"] > 0


@pytest.mark.parametrize("words", [["--batch", "9"], ["--stragglers", "4"], ["--loss", "1"], ["--variant", "none"]])
def test_refused_options(words, capsys):
    with pytest.raises(SystemExit):
        thc_workers.arguments([*ARGUMENTS, *words])
    assert "error" in capsys.readouterr().err


def test_a_batch_that_the_task_lacks_is_refused(monkeypatch):
    monkeypatch.setattr(TinyTask, "sample", lambda self, *_: (torch.zeros(6, 40), torch.zeros(6, dtype=torch.long)))
    with pytest.raises(ValueError, match="6 samples for a batch of 8"):
        simulation().step(0)
