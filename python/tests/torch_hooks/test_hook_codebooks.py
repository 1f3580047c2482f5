"""Installed codebooks that are renewed: the same values as with fresh ones, and ranks that have others."""

import io
import logging
import math
import time

import gradwire.torch
import pytest
import torch
from gradwire.torch import _pool
from gradwire.torch.renewal import Codebooks
from ranks import run
from test_ddp import OPTIONS, batch, digest, model, train_step
from test_planned import plan
from torch.nn.parallel import DistributedDataParallel as DDP

RENEWED = {"books": "renewed", "books_every": 2}


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
        logging.getLogger("gradwire").addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())


def steps(
    rank, size, options, first, last, saved=None, before=None, optimizer="adamw", dtype=torch.float32, factors=None
):
    """Trains steps [first, last). Returns digest, checkpoint, and for each step the bytes sent and the generations of
    the buckets; or what was raised and its step. factors: of the loss, by step; the optimizer skips a step that is not
    finite, as GradScaler does."""
    lines, net = Lines(), model(width=128).to(dtype)
    saved = None if saved is None else torch.load(io.BytesIO(saved[rank][1]))
    if optimizer == "adamw":
        made = torch.optim.AdamW(net.parameters(), lr=1e-3)
    else:
        made = torch.optim.LBFGS(net.parameters(), lr=0.01, max_iter=1)
    if saved is not None:
        net.load_state_dict(saved["net"])
        made.load_state_dict(saved["optimizer"])
    ddp = DDP(net, bucket_cap_mb=0.05)
    state, hook = gradwire.torch.ddp_hook(made, **{**OPTIONS, **options})
    ddp.register_comm_hook(state, hook)
    if saved is not None:
        state.load_state_dict(saved["hook"])
    seen, sent = [], 0
    for step in range(first, last):
        if before is not None:
            before(rank, step, state)

        def closure(step=step):
            x, y = batch(rank, step)
            made.zero_grad()
            loss = torch.nn.functional.mse_loss(ddp(x.to(dtype)).float(), y)
            (loss * (factors or {}).get(step, 1.0)).backward()
            return loss

        try:
            if (factors or {}).get(step) == math.inf:
                closure()
            else:
                made.step(closure)
            state.check()
        except RuntimeError:
            return str(state.error), step
        plans = list(state.engine.plans.values())
        now = state.report.totals()["sent_size"]
        seen.append((now - sent, [plan.codebooks and plan.codebooks.generation for plan in plans]))
        sent = now
    checkpoint = {"net": net.state_dict(), "optimizer": made.state_dict(), "hook": state.state_dict()}
    mismatches = state.engine.codebooks.mismatches
    state.close()
    file = io.BytesIO()
    torch.save(checkpoint, file)
    return digest(net.float()), file.getvalue(), seen, mismatches, lines.lines


MODES = {
    "derived": ({}, "adamw"),
    "explicit": ({"quantum_mode": "explicit"}, "adamw"),
    "carried": ({"quantum_mode": "carried", "contribution_bits": 1}, "adamw"),
    "ring": ({"algorithm": "ring"}, "adamw"),
    "unknown": ({}, "lbfgs"),
    "bf16": ({"quantum_mode": "explicit"}, "adamw", torch.bfloat16),
}


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "bf16" or torch.__version__ >= "2"])  # Gloo of 1.13
def test_renewed_codebooks_change_sizes_and_no_values(mode):
    options, *others = MODES[mode]
    fresh = run(steps, 2, options, 0, 7, None, None, *others)
    found = run(steps, 2, {**options, **RENEWED}, 0, 7, None, None, *others)
    assert found[0][0] == found[1][0] == fresh[0][0]
    for rank in range(2):
        sizes = [(a, b) for (a, _), (b, _) in zip(found[rank][2], fresh[rank][2])]
        generations = [generations for _, generations in found[rank][2]]
        assert sizes[0][0] == sizes[0][1] and sizes[-1][0] != sizes[-1][1]
        assert all(renewed < 1.15 * own for renewed, own in sizes)
        assert all(len(set(one)) == 1 for one in generations[2:])
        assert [one[0] for one in generations[2:]] == [1, 1, 2, 2, 3]  # counted at the end of 1, 3 and 5
        assert found[rank][3] == 0 and not any("codebooks" in line for line in found[rank][4])


def other_codebooks(rank, step, state):
    """Between two steps rank 1 installs something else, of the generation that all have."""
    if rank == 1 and step == 5:
        for plan in state.engine.plans.values():
            words = torch.ones(2 * plan.exchange.info.codebook_word_count, dtype=torch.int32)
            words.view(-1, 268)[:, 1] = 0
            state.engine.call(lambda plan=plan, words=words: plan.exchange.install_codebooks(77, words.data_ptr()))


@pytest.mark.parametrize("mode", ["derived", "unknown"])
def test_a_rank_with_other_codebooks_makes_all_use_fresh_ones(mode):
    options, *others = MODES[mode]
    fresh = run(steps, 2, options, 0, 9, None, None, *others)
    found = run(steps, 2, {**options, **RENEWED}, 0, 9, None, other_codebooks, *others)
    assert found[0][0] == found[1][0] == fresh[0][0]
    for rank in range(2):
        generations = [one[0] for _, one in found[rank][2]]
        assert generations[2:] == [1, 1, 2, 0, 3, 3, 4]
        assert found[rank][2][5][0] == fresh[rank][2][5][0]  # the bytes of a step without
        assert found[rank][3] == 1
        assert sum("the codebooks of the ranks differ" in line for line in found[rank][4]) == (rank == 0)


def stubborn(rank, step, state):
    """Rank 1 does not hear that the ranks have other codebooks."""
    other_codebooks(rank, step, state)
    if rank == 1 and step == 5:
        mine = state.engine.codebooks

        def agree(plans, words, step):
            Codebooks.agree(mine, plans, words, step)
            for plan in plans:
                plan.codebooks.generation = 2

        mine.agree = agree


def test_a_frame_of_codebooks_that_a_rank_lacks_raises_on_all():
    found = run(steps, 2, RENEWED, 0, 9, None, stubborn)
    for message, step in found.values():
        assert "TABLE" in message.upper() and step == 5


def other_states(rank, step, state):
    """From step 4 on the moments differ, and so do the maps."""
    if rank == 1 and step >= 4:
        for one in state.engine.registry.optimizers[0].state.values():
            one["exp_avg"].mul_(1.5)


def test_steps_of_the_fallback_codec_are_not_counted():
    found = run(steps, 2, RENEWED, 0, 9, None, other_states)
    for rank in range(2):
        assert [one[0] for _, one in found[rank][2]][2:] == [1, 1, 2, 2, 2, 2, 2] and found[rank][3] == 0
        assert sum("are not renewed" in line for line in found[rank][4]) == (rank == 0)


def test_a_resumed_run_begins_with_fresh_codebooks_and_gives_the_same_bits():
    whole = run(steps, 2, RENEWED, 0, 8)
    half = run(steps, 2, RENEWED, 0, 5)
    resumed = run(steps, 2, RENEWED, 5, 8, half)
    assert [resumed[rank][0] for rank in range(2)] == [whole[rank][0] for rank in range(2)]
    assert [one[0] for _, one in resumed[0][2]] == [0, 1, 1]
    assert [one[0] for _, one in whole[0][2]][5:] == [2, 3, 3]


def compared(options, factors, last):
    """Sizes with renewed codebooks divided by those with fresh ones, and generations of the first
    bucket, by step of rank 0; and lines."""
    fresh = run(steps, 2, options, 0, last, None, None, "adamw", torch.float32, factors)
    found = run(
        steps, 2, {**options, **RENEWED, "books_every": 6}, 0, last, None, None, "adamw", torch.float32, factors
    )
    assert found[0][0] == found[1][0] == fresh[0][0]
    ratios = [a / b for (a, _), (b, _) in zip(found[0][2], fresh[0][2])]
    assert [one for _, one in found[0][2]] == [one for _, one in found[1][2]] and found[0][3] == 0
    assert all(ratio == 1 for ratio, (_, one) in zip(ratios, found[0][2]) if not any(one))
    return ratios, [one[0] for _, one in found[0][2]], found[0][4]


@pytest.mark.parametrize("options", [{}, {"quantum_mode": "explicit"}], ids=["derived", "explicit"])
@pytest.mark.parametrize("factor", [0.0, math.inf])
def test_a_counted_step_without_ordinary_values_is_not_used(factor, options):
    ratios, generations, lines = compared(options, {5: factor}, 14)
    assert generations == [0] * 12 + [2, 2]
    assert all(ratio == 1 for ratio in ratios[:12]) and all(ratio < 1.2 for ratio in ratios)
    assert sum("nearly all values were zeros, NaN or infinite" in line for line in lines) == 1


@pytest.mark.parametrize("options", [{}, {"quantum_mode": "explicit"}], ids=["derived", "explicit"])
@pytest.mark.parametrize("factor", [0.0, math.inf, 0.1, 16.0])
def test_codebooks_that_do_not_fit_any_more_are_used_for_one_step(factor, options):
    ratios, generations, lines = compared(options, dict.fromkeys(range(8, 11), factor), 14)
    assert generations == [0] * 6 + [1] * 3 + [0] * 3 + [2] * 2
    assert all(ratio < 1.2 for i, ratio in enumerate(ratios) if i != 8)
    assert sum("have other sizes" in line for line in lines) == 1


def refused_install(rank, step, state):
    """The library refuses what rank 1 installs for step 2."""
    for bucket in state.engine.plans.values() if rank == 1 and step == 2 else ():
        install = bucket.exchange.install_codebooks
        bucket.exchange.install_codebooks = lambda generation, address, install=install: install(0, address)
    for bucket in state.engine.plans.values() if step == 3 else ():
        vars(bucket.exchange).pop("install_codebooks", None)


def test_a_refusal_on_one_rank_means_fresh_codebooks():
    fresh = run(steps, 2, {}, 0, 7)
    found = run(steps, 2, RENEWED, 0, 7, None, refused_install)
    assert found[0][0] == found[1][0] == fresh[0][0]
    for rank in range(2):
        assert [one[0] for _, one in found[rank][2]] == [0, 0, 0, 0, 2, 2, 3] and found[rank][3] == 0


def earlier_step(rank, step, state):
    """A state of an earlier step is loaded during the run: steps 3 and 4 come again."""
    if step == 3:
        state.kept = state.state_dict()
    if step == 5:
        state.load_state_dict(state.kept)


def test_a_step_that_comes_again_does_not_end_the_training():
    found = run(steps, 2, RENEWED, 0, 11, None, earlier_step)
    for rank in range(2):
        assert [one[0] for _, one in found[rank][2]] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]


def slow_events(rank, step, state):
    """The loop thread is late with the ends of counts, and buckets are retired meanwhile."""
    if step == 0:
        pool = state.engine.pool
        wait = pool.wait

        def late(timeout):
            events = list(wait(timeout))
            if any(event.kind == _pool.CODEBOOKS for event in events):
                time.sleep(0.1)
            return events

        pool.wait = late
    if step == 2:
        for one in state.codecs.gcomp:
            for key in list(one.plans):
                state.engine.retire(one.plans.pop(key))


def test_a_bucket_may_be_retired_while_it_is_counted():
    found = run(steps, 2, {**RENEWED, "books_every": 1}, 0, 4, None, slow_events)
    for rank in range(2):
        assert len(found[rank]) == 5 and found[rank][2][-1][1][0] == 2  # DDP's first buckets had 1


def planned(rank, size, document, options, count):
    """Generations of the buckets at the end, what was said, and the parameters."""
    lines, net = Lines(), model()
    ddp = gradwire.torch.planned_ddp(net, document)
    made = torch.optim.AdamW(net.parameters(), lr=1e-3)
    state, hook = gradwire.torch.ddp_hook(made, plan=document, model=ddp, piece_len=1 << 12, **options)
    ddp.register_comm_hook(state, hook)
    for step in range(count):
        train_step(ddp, made, rank, step)
    state.check()
    generations = [one.codebooks and one.codebooks.generation for one in state.engine.plans.values()]
    state.close()
    return generations, lines.lines, digest(net)


@pytest.mark.parametrize("debug", [False, True])
def test_codebooks_are_renewed_with_several_codecs(debug):
    document = plan((2, "fp32"), (1, "fp16"), (1, "gcomp-t12"), (1, "bf16"), (1, "thc", {"bits": 4}))
    fresh = run(planned, 2, document, {"debug": debug}, 7)
    found = run(planned, 2, document, {"debug": debug, **RENEWED}, 7)
    for rank in range(2):
        generations, lines, end = found[rank]
        assert generations and set(generations) == {3} and end == fresh[rank][2]
        assert [line for line in lines if "are not renewed" in line] == []


def refused(rank, size):
    optimizer = torch.optim.AdamW(model().parameters(), lr=1e-3)
    for options in ({"books": "old"}, {"books": "renewed", "books_every": 0}, {"books_every": 1.5}):
        with pytest.raises(ValueError, match="books"):
            gradwire.torch.ddp_hook(optimizer, **options)
    with pytest.raises(TypeError, match="no option 'books'"):
        gradwire.torch.Communicator(books="renewed")
    return True


def test_options_that_do_not_exist_are_refused():
    assert run(refused, 1)[0]
