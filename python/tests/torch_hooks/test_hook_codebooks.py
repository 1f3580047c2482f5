"""Installed codebooks that are renewed: the same values as with fresh ones, and ranks that have others."""

import io
import logging

import gradwire.torch
import pytest
import torch
from gradwire.torch.books import Books
from ranks import run
from test_ddp import OPTIONS, batch, digest, model
from torch.nn.parallel import DistributedDataParallel as DDP

RENEWED = {"books": "renewed", "books_every": 2}


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
        logging.getLogger("gradwire").addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())


def steps(rank, size, options, first, last, saved=None, before=None, optimizer="adamw", dtype=torch.float32):
    """Trains steps [first, last). Returns digest, checkpoint, and for each step the bytes sent and the generations of
    the buckets; or what was raised and its step."""
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
            loss.backward()
            return loss

        try:
            made.step(closure)
            state.check()
        except RuntimeError:
            return str(state.error), step
        plans = list(state.engine.plans.values())
        now = state.report.totals()["sent_size"]
        seen.append((now - sent, [plan.books and plan.books.generation for plan in plans]))
        sent = now
    checkpoint = {"net": net.state_dict(), "optimizer": made.state_dict(), "hook": state.state_dict()}
    mismatches = state.engine.books.mismatches
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
        assert [one[0] for one in generations[2:]] == [2, 2, 4, 4, 6]  # counted at the end of 1, 3 and 5
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
        assert generations[2:] == [2, 2, 4, 0, 6, 6, 8]
        assert found[rank][2][5][0] == fresh[rank][2][5][0]  # the bytes of a step without
        assert found[rank][3] == 1
        assert sum("the codebooks of the ranks differ" in line for line in found[rank][4]) == (rank == 0)


def stubborn(rank, step, state):
    """Rank 1 does not hear that the ranks have other codebooks."""
    other_codebooks(rank, step, state)
    if rank == 1 and step == 5:
        mine = state.engine.books

        def agree(plans, words, step):
            Books.agree(mine, plans, words, step)
            for plan in plans:
                plan.books.generation = 4

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
        assert [one[0] for _, one in found[rank][2]][2:] == [2, 2, 4, 4, 4, 4, 4] and found[rank][3] == 0


def test_a_resumed_run_begins_with_fresh_codebooks_and_gives_the_same_bits():
    whole = run(steps, 2, RENEWED, 0, 8)
    half = run(steps, 2, RENEWED, 0, 5)
    resumed = run(steps, 2, RENEWED, 5, 8, half)
    assert [resumed[rank][0] for rank in range(2)] == [whole[rank][0] for rank in range(2)]
    assert [one[0] for _, one in resumed[0][2]] == [0, 6, 6]
    assert [one[0] for _, one in whole[0][2]][5:] == [4, 6, 6]


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
