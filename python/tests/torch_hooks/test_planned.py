"""Plans in the DDP hook: buckets, codecs, recordings, and plans that do not fit."""

import inspect
import itertools
import json
import os
import random
import re

import gradwire.torch
import pytest
import torch
from gradwire.torch import planned, recording
from gradwire.torch.buckets import Bucket
from gradwire.torch.codecs import check_options
from ranks import run
from test_ddp import OPTIMIZERS, batch, digest, model, train_step
from torch.nn.parallel import DistributedDataParallel as DDP

ORDER = ["4.bias", "4.weight", "2.bias", "2.weight", "0.bias", "0.weight"]  # in which backprop finishes gradients
SIZES = {name: param.numel() for name, param in model().named_parameters()}
OPTIONS = {"piece_len": 1 << 12, "debug": True}
NUMBERS = {name: f"parameter.{number}" for number, name in enumerate(SIZES)}


def plan(*groups, names=None):
    """groups: (number of gradients, codec, options...) in the order of backprop."""
    entries, at = [], 0
    for count, codec, *options in groups:
        chosen = ORDER[at : at + count]
        at += count
        entry = {"codec": codec, "elems": sum(SIZES[name] for name in chosen)}
        entry["names"] = [names[name] for name in chosen] if names else chosen
        entries.append({**entry, **({"options": options[0]} if options else {})})
    assert at == len(ORDER)
    return {"schema": "gradwire-buckets/1", "groups": entries}


def train(rank, size, document, steps, make="planned", name="adamw", options=None):
    net = model()
    made = {"planned": gradwire.torch.planned_ddp, "whole": DDP}
    ddp = gradwire.torch.planned_ddp(net, document) if make == "exact" else made[make](net)
    optimizer = OPTIMIZERS[name](net.parameters())
    state, hook = gradwire.torch.ddp_hook(optimizer, plan=document, model=ddp, **{**OPTIONS, **(options or {})})
    ddp.register_comm_hook(state, hook)
    losses = []
    for step in range(steps):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    state.check()
    misfits, totals = sorted(state.codecs.planned.misfits), state.report.totals()
    state.close()
    return losses, digest(net), misfits, totals


@pytest.mark.parametrize(
    "codec, options, share",
    [
        ("fp16", {}, 0.5),
        ("bf16", {}, 0.5),
        ("thc", {"bits": 4}, 0.205),
        ("classic", {"scheme": "qsgd"}, None),
        ("classic", {"scheme": "bf16"}, 0.5),
    ],
)
def test_statistics_count_all_codecs_of_a_plan(codec, options, share):
    for _, _, _, totals in run(train, 2, plan((6, codec, options)), 3).values():
        assert totals["full_size"] == 3 * 4 * sum(SIZES.values())
        assert totals["sent_size"] == pytest.approx(totals["received_size"], rel=0.01) and totals["sent_size"] > 0
        assert share is None or totals["sent_size"] / totals["full_size"] == pytest.approx(share, rel=0.01)


MIXED = plan((2, "fp32"), (1, "fp16"), (1, "gcomp-t12"), (1, "bf16"), (1, "thc", {"bits": 4}))


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_codec_in_one_plan(ranks):
    found = run(train, ranks, MIXED, 5)
    plain = run(train, ranks, plan((6, "fp32")), 5)
    assert len({digest for _, digest, _, _ in found.values()}) == 1
    for rank in range(ranks):
        assert found[rank][0] == pytest.approx(plain[rank][0], rel=0.05)
        assert found[rank][2] == []
        assert found[rank][3]["sent_size"] > 0  # by the bucket of gcomp-t12


def spoiled(rank, size, codec, options):
    """Rank 1 alone gets a bad value in step 2, of the first of two buckets."""
    document = plan((2, codec, options), (4, "fp32"))
    net = model()
    ddp = gradwire.torch.planned_ddp(net, document)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    state, hook = gradwire.torch.ddp_hook(optimizer, plan=document, model=net, **OPTIONS)
    ddp.register_comm_hook(state, hook)
    (other,) = state.codecs.reducers[2:]  # after plain and GCOMP
    start, steps = other.start, itertools.count()

    def spoil(done, step):
        values = done.value()
        values[5] += rank == 1 and step == 2
        return values

    def spoiling(bucket):
        step = next(steps)
        return start(bucket).then(lambda done: spoil(done, step))

    other.start = spoiling
    for step in range(4):
        try:
            train_step(ddp, optimizer, rank, step)
        except RuntimeError:
            return step, str(state.error)
    return None, ""


@pytest.mark.parametrize(
    "codec, options",
    [
        ("fp16", {}),
        ("bf16", {}),
        ("thc", {"bits": 4}),
        ("classic", {"scheme": "topk"}),
        ("classic", {"scheme": "fp16"}),
    ],
)
def test_debug_mode_compares_all_codecs_of_a_plan(codec, options):
    for step, message in run(spoiled, 2, codec, options).values():
        assert step == 2 and "results of the ranks differ" in message


@pytest.mark.parametrize("codec", ["gcomp", "gcomp-t12", "fp16", "bf16", "fp32"])
@pytest.mark.parametrize("cuts", [(6,), (1, 2, 3)])
def test_one_codec_follows_plain_training(codec, cuts):
    document = plan(*[(count, codec) for count in cuts])
    found = run(train, 3, document, 4)
    assert len({digest for _, digest, _, _ in found.values()}) == 1
    plain = run(train, 3, plan((6, "fp32")), 4)
    for rank in range(3):
        assert found[rank][0] == pytest.approx(plain[rank][0], rel=0.02)


def test_buckets_are_those_of_the_plan_however_ddp_cuts():
    """Bit by bit: which rank owns a value, and so its rounding, depends on the buckets. THC's random streams too."""
    document = plan((1, "gcomp-t12"), (3, "gcomp-t12"), (2, "thc"))
    fine = run(train, 2, document, 4, "planned")
    whole = run(train, 2, document, 4, "whole")
    assert fine[0][1] == whole[0][1]
    assert fine[0][2] == []
    assert whole[0][2] == [(0, 1), (1, 2)]  # one bucket of DDP has gradients of all


def cuts(rank, size, document, numbers, environment=(), options=None):
    """Sizes of DDP's buckets, backward pass after backward pass."""
    os.environ.update(environment)
    net = model()
    ddp = gradwire.torch.planned_ddp(net, document, **(options or {}))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    state, _ = gradwire.torch.ddp_hook(optimizer, plan=document, model=None if numbers else net)
    found = [[] for _ in range(3)]

    def hook(state, bucket):
        found[state.step].append(bucket.buffer().numel())
        return state.reduce(bucket)

    ddp.register_comm_hook(state, hook)
    for step in range(3):
        train_step(ddp, optimizer, rank, step)
    state.close()
    return found, [group.room.flat is None for group in state.codecs.planned.groups], ddp.find_unused_parameters


COUNTS = [(1, 3, 2), (1, 2, 3), (2, 1, 3), (3, 3), (1, 1, 1, 3), (6,)]


def cut_names(counts):
    return [ORDER[sum(counts[:i]) : sum(counts[: i + 1])] for i in range(len(counts))]


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("counts", COUNTS)
def test_ddp_has_the_buckets_of_the_plan(counts, numbers):
    """In every step, and nothing is copied."""
    document = plan(*[(count, "gcomp-t12") for count in counts], names=NUMBERS if numbers else None)
    sizes = [group["elems"] for group in document["groups"]]
    groups = [[4 * SIZES[name] for name in names] for names in cut_names(counts)]
    expected = 3 * [sizes], len(sizes) * [True], planned._by_size(groups) is None
    assert run(cuts, 2, document, numbers) == dict.fromkeys(range(2), expected)


def test_ddp_whose_last_bucket_is_small_has_the_buckets_of_the_plan():
    """torch 2 with this variable makes its buckets from the other end."""
    document = plan((1, "gcomp-t12"), (3, "gcomp-t12"), (2, "gcomp-t12"))
    expected = 3 * [[group["elems"] for group in document["groups"]]], 3 * [True], True
    found = run(cuts, 2, document, False, {"DDP_SET_LAST_BUCKET_CAP": "1"})
    assert found == dict.fromkeys(range(2), expected)


def test_plans_in_another_order_than_backprop():
    """By sizes DDP would cut other buckets: those of the plan stay with its search for unused parameters."""
    document = plan((1, "gcomp-t12"), (3, "gcomp-t12"), (2, "gcomp-t12"))
    first, second, third = document["groups"]
    document["groups"] = [second, first, third]
    expected = 3 * [[group["elems"] for group in document["groups"]]], 3 * [True], True
    found = run(cuts, 2, document, False, (), {"find_unused_parameters": True})
    assert found == dict.fromkeys(range(2), expected)


def test_sizes_of_all_buckets():
    """torch 2 with bucket_cap_mb_list: any buckets but those that end with a parameter without values."""
    limits = planned._limits
    assert limits([[5]]) == [6] and limits([[2, 3], [4, 0, 1], [7]]) == [5, 5, 8]
    assert limits([[2], [3, 1], [4, 0]]) == [2, 4, 5]
    assert limits([[2, 0], [4]]) is None


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch 1.13 takes two sizes")
def test_torch_2_needs_no_map_of_unused_parameters():
    """An all-reduce at the end of each step."""
    takes = "bucket_cap_mb_list" in inspect.signature(DDP).parameters
    assert (planned._by_size([[4], [8, 4], [4]]) is not None) == takes


def test_plans_of_both_kinds_were_tried():
    """By torch 1.13, which takes two sizes."""
    kinds = {
        planned._caps([[SIZES[name] for name in names] for names in cut_names(counts)]) is None for counts in COUNTS
    }
    assert kinds == {False, True}


def test_sizes_that_make_buckets():
    caps = planned._caps
    assert caps([[5]]) == (5, 1) and caps([[2, 3], [4]]) == (5, 4) and caps([[2], [3, 1], [4]]) == (2, 4)
    assert caps([[2], [4], [1, 2]]) == (2, 4)  # the last one ends with the model
    assert caps([[2], [3], [2, 2]]) == (2, 3)  # or larger
    assert caps([[2], [4, 1], [4], [1]]) is None and caps([[2], [3], [4, 4]]) is None
    assert caps([[2, 0], [4]]) is None  # the first is closed before its last parameter


def by_size(cuts, caps):
    """What DDP makes of it: compute_bucket_assignment_by_size() of torch 1.13 and 2.15."""
    found, now = [], []
    for size in [size for cut in cuts for size in cut]:
        now.append(size)
        if sum(now) >= caps[min(len(found), len(caps) - 1)]:
            found, now = [*found, now], []
    return [*found, now] if now else found


def test_sizes_against_a_model_of_ddp():
    rng, hits = random.Random(5), 0
    for _ in range(3000):
        cuts = [[rng.randrange(5) for _ in range(rng.randrange(1, 4))] for _ in range(rng.randrange(1, 5))]
        limits, caps = planned._limits(cuts), planned._caps(cuts)
        assert limits is None or by_size(cuts, limits) == cuts
        if caps is not None:
            hits += 1
            assert by_size(cuts, caps) == cuts
        elif min(map(min, cuts)) > 0:
            assert all(by_size(cuts, (a, b)) != cuts for a in range(1, 14) for b in range(1, 14))
    assert 300 < hits < 2700


def test_exact_buckets_give_the_same_bits():
    document = plan((1, "gcomp-t12"), (3, "gcomp-t12"), (2, "thc"))
    assert run(train, 2, document, 4, "exact")[0][1] == run(train, 2, document, 4, "whole")[0][1]


def test_ddp_with_a_plan_of_another_model_is_refused():
    with pytest.raises(ValueError, match="only the plan or only the module has: 0.weight"):
        gradwire.torch.planned_ddp(model(), without(plan((5, "fp32"), (1, "fp32")), 1))


def test_ddp_with_a_plan_of_other_sizes_is_refused():
    """As if the optimizer, whose order a recording has, had its parameters in another order than the module."""
    document = plan((1, "fp32"), (5, "fp32"), names=NUMBERS)
    document["groups"][0]["names"], document["groups"][1]["names"][0] = ["parameter.4"], "parameter.5"
    with pytest.raises(ValueError, match="bucket 0 of the plan is for 3 values, not 192; numbers are"):
        gradwire.torch.planned_ddp(model(), document)


def test_options_of_a_bucket_change_what_it_sends():
    sizes = []
    for bits in (8, 16):
        document = plan((6, "mine", {"codec": "gradwire", "tolerance_bits": bits}))
        sizes.append(run(train, 2, document, 12)[0][3]["sent_size"])  # the first step is exact in both
    assert sizes[0] < 0.7 * sizes[1]


def by_number(rank, size, document):
    """Without a model parameters are numbered: the one argument of a plan that was made from a recording."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    ddp = gradwire.torch.planned_ddp(net)
    state, hook = gradwire.torch.ddp_hook(optimizer, plan=document)
    ddp.register_comm_hook(state, hook)
    x, y = batch(rank, 0)
    torch.nn.functional.mse_loss(ddp(x), y).backward()
    state.close()
    return len(state.codecs.planned.groups)


def test_a_plan_by_numbers_is_one_argument(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan((2, "fp32"), (4, "gcomp-t14"), names=NUMBERS)))
    assert run(by_number, 2, str(path))[1] == 2


def refused(rank, size, document, model_given):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    ddp = gradwire.torch.planned_ddp(net)
    state = None
    try:
        chosen = document[rank] if isinstance(document, list) else document
        state, hook = gradwire.torch.ddp_hook(optimizer, plan=chosen, model=net if model_given else None)
        ddp.register_comm_hook(state, hook)
        x, y = batch(rank, 0)
        torch.nn.functional.mse_loss(ddp(x), y).backward()
    except (ValueError, RuntimeError) as error:
        return str(state.error if state else error)
    return None


def without(document, group):
    return {**document, "groups": document["groups"][:group] + document["groups"][group + 1 :]}


WRONG = {
    "not a plan": {"schema": "x", "groups": []},
    "no groups": {"schema": "gradwire-plan/1", "groups": []},
    "no names": {"schema": "gradwire-plan/1", "groups": [{"codec": "fp32"}]},
    "the hook has none, fp16, bf16, gradwire, thc": plan((6, "dgc")),
    "runs as allreduce, not as allgather": {
        "schema": "gradwire-plan/1",
        "groups": [{**plan((6, "fp32"))["groups"][0], "algorithm": "allgather"}],
    },
    "no option colour": plan((6, "gcomp-t12", {"colour": 1})),
    "fp16 has no options": plan((6, "fp16", {"tolerance_bits": 1})),
    "a parameter twice": {"schema": "gradwire-plan/1", "groups": 2 * plan((6, "fp32"))["groups"]},
    "there is no operation 'x'": {"schema": "gradwire-plan/1", "groups": [{"names": ["a"], "option": "x"}]},
}


@pytest.mark.parametrize("why", WRONG)
def test_plans_that_cannot_run_are_refused(why):
    with pytest.raises(ValueError, match=re.escape(why)):
        for bucket in planned.load(WRONG[why]):
            check_options(bucket.kind, bucket.options)


@pytest.mark.parametrize(
    "document, model_given, why",
    [
        (without(plan((2, "fp32"), (4, "fp32")), 1), True, "no bucket for the parameter"),
        (plan((6, "fp32")), False, "give model="),
        ({**plan((6, "fp32")), "groups": [{**plan((6, "fp32"))["groups"][0], "elems": 5}]}, True, "for 5 values"),
        ([plan((6, "fp32")), plan((5, "fp32"), (1, "fp32"))], True, "different options: plan"),
        (
            {**plan((6, "fp32")), "groups": plan((6, "fp32"))["groups"] + [{"names": ["more"], "codec": "fp32"}]},
            True,
            "does not reduce: more",
        ),
    ],
)
def test_plans_of_another_model_are_refused_on_all_ranks(document, model_given, why):
    for message in run(refused, 2, document, model_given).values():
        assert why in message


def for_ranks(count, schema):
    """A plan that says for how many ranks it is, as `plan solve` and `plan export` write it."""
    said = {"ranks": count} if schema == "gradwire-buckets/1" else {"problem": {"nodes": count // 2, "gpus": 2}}
    return {**plan((6, "fp32")), "schema": schema, **said}


def other_ranks(rank, size, document, make):
    """What the rank is told of a plan of which rank 0 has the first and the others the last one; None: nothing."""
    net = model()
    chosen = document[min(rank, len(document) - 1)]
    try:
        if make == "planned_ddp":
            gradwire.torch.planned_ddp(net, chosen)
        else:
            optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
            gradwire.torch.ddp_hook(optimizer, plan=chosen, model=net)[0].close()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("schema", planned.SCHEMAS)
@pytest.mark.parametrize("make", ["planned_ddp", "ddp_hook"])
def test_a_plan_for_other_ranks_is_refused_on_all_ranks(make, schema):
    wrong, right = for_ranks(4, schema), for_ranks(2, schema)
    for message in run(other_ranks, 2, [wrong], make).values():
        assert "the plan is for 4 ranks, the process group has 2" in message and "a cluster file of 2 ranks" in message
    alone = run(other_ranks, 2, [wrong, right], make)
    assert "for 4 ranks" in alone[0] and "rank 0 failed to make its hook" in alone[1]
    assert set(run(other_ranks, 2, [right], make).values()) == {None}


def test_byte_order_mark(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(plan((6, "fp32"))).encode())
    assert len(planned.load(path)) == 1


def test_ranks_of_a_flat_cluster():
    """As `plan solve` writes them. Only there --ranks is a way to another number: it makes one machine of all."""
    document = {**plan((6, "fp32")), "problem": {"nodes": 1, "gpus": 3}}
    assert len(planned.load(document, 3)) == 1 and len(planned.load(document)) == 1
    with pytest.raises(ValueError, match="for 3 ranks.*solve it with --ranks 2"):
        planned.load(document, 2)


def narrow_gradients(rank, size, codec, dtype):
    """What the hook's future says of a bucket of a plan with gradients of this type: the largest error, or why not."""
    net = model().to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    state, _ = gradwire.torch.ddp_hook(optimizer, plan=plan((6, codec)), model=net)
    state.codecs.compressing = True
    params = dict(net.named_parameters())
    params = [params[name] for name in ORDER]
    flat = torch.linspace(0.5, 1.0, sum(SIZES.values())).mul(rank + 1.0).to(dtype)
    views = [part.view_as(param) for part, param in zip(flat.split([p.numel() for p in params]), params)]
    try:
        state.codecs.planned._run(0, Bucket(flat, params, views)).wait()
    except (ValueError, RuntimeError) as error:
        return str(error)
    finally:
        state.close()
    return (flat.float() / torch.linspace(0.5, 1.0, flat.numel()) - 1.5).abs().max().item()


@pytest.mark.parametrize("codec", ["fp32", "fp16", "bf16", "gcomp", "gcomp-t12", "thc"])
def test_gradients_of_two_bytes_in_a_plan(codec):
    for dtype in (torch.float16, torch.bfloat16):
        if codec == "fp32" and dtype == torch.bfloat16 and not hasattr(torch, "compile"):
            continue  # torch 1.13's Gloo does not add them
        for found in run(narrow_gradients, 2, codec, dtype).values():
            if codec == "thc":
                assert f"thc takes gradients of torch.float32, not of {dtype}" in found
            else:
                assert found < 0.02


def resumed(rank, size, document, cut):
    """A run that is cut, saved and resumed with a new model, DDP and hook, whose own seed is another one."""
    saved = None
    for first, last in ((0, cut), (cut, 6)):
        net = model()
        optimizer = OPTIMIZERS["adamw"](net.parameters())
        if saved is not None:
            net.load_state_dict(saved["net"])
            optimizer.load_state_dict(saved["optimizer"])
        ddp = gradwire.torch.planned_ddp(net)
        seed = 3 if saved is None else 0
        state, hook = gradwire.torch.ddp_hook(optimizer, plan=document, model=net, seed=seed, **OPTIONS)
        if saved is not None:
            state.load_state_dict(saved["hook"])
        ddp.register_comm_hook(state, hook)
        for step in range(first, last):
            x, y = batch(rank, step)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(ddp(x), y).backward()
            optimizer.step()
        saved = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "hook": state.state_dict()}
        state.close()
    return digest(net)


def test_a_resumed_run_gives_the_same_bits():
    document = plan((2, "gcomp-t12"), (2, "thc"), (2, "gcomp-t14"))
    assert run(resumed, 2, document, 3)[0] == run(resumed, 2, document, 0)[0]


def test_a_recording_has_gradients_and_messages(tmp_path):
    path = tmp_path / "run.json"
    run(train, 3, MIXED, 8, "planned", "adamw", {"record": str(path), "record_steps": (3, 7)})
    events = json.loads(path.read_text())["traceEvents"]
    steps = [event for event in events if event["cat"] == "user_annotation"]
    assert [step["name"] for step in steps] == [f"ProfilerStep#{i}" for i in range(3, 7)]
    for step, following in zip(steps, steps[1:]):
        assert step["dur"] > 0 and following["ts"] == pytest.approx(step["ts"] + step["dur"], abs=1)
    for step in steps:
        inside = [event for event in events if step["ts"] <= event["ts"] < step["ts"] + step["dur"]]
        gradients = [event for event in inside if event["name"] == "gradient"]
        messages = [event for event in inside if event["name"] == "message"]
        assert {event["args"]["name"]: event["args"]["elems"] for event in gradients} == SIZES
        assert [event["args"]["codec"] for event in messages] == ["fp32", "fp16", "gcomp-t12", "bf16", "thc"]
        assert sum(event["args"]["elems"] for event in messages) == sum(SIZES.values())
        for message in messages:
            names = MIXED["groups"][message["args"]["number"]]["names"]
            last = max(gradient["ts"] for gradient in gradients if gradient["args"]["name"] in names)
            assert message["ts"] >= last and message["ts"] + message["dur"] <= step["ts"] + step["dur"] + 1
        coded = messages[2]["args"]
        assert 0 <= coded["started_us"] <= coded["encoded_us"] <= messages[2]["dur"]
        assert coded["encode_us"] > 0 and coded["sent_size"] > 0


def rounded(rank, size, document, steps):
    net = model()
    ddp = gradwire.torch.planned_ddp(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    state, hook = gradwire.torch.ddp_hook(optimizer, plan=document, model=net)
    ddp.register_comm_hook(state, hook)
    for step in range(steps):
        train_step(ddp, optimizer, rank, step)
    state.close()
    return digest(net)


def test_fp16_and_bf16_do_not_meet():
    """One runs on a thread where Gloo does not add bf16: with one group for both, ranks would issue their calls in
    different orders."""
    document = plan((1, "bf16"), (1, "fp16"), (1, "bf16"), (1, "fp16"), (1, "bf16"), (1, "fp16"))
    assert len(set(run(rounded, 3, document, 60).values())) == 1


def test_a_recording_that_can_be_written_does_no_harm(tmp_path):
    """Neither to a file that is there nor by one that was not."""
    path = tmp_path / "run.json"
    recording.check_writable(path)
    assert not path.exists()
    link = tmp_path / "link.json"
    link.symlink_to(path)
    recording.check_writable(link)
    assert link.is_symlink() and not path.exists()
    path.write_text("mine")
    recording.check_writable(str(path))
    assert path.read_text() == "mine"
    for bad in (tmp_path, path / "below", tmp_path / "none" / "run.json"):
        with pytest.raises(OSError):
            recording.check_writable(bad)


def evaluated(rank, size, path):
    net, criterion = model(), torch.nn.MSELoss()
    ddp = gradwire.torch.planned_ddp(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    state, hook = gradwire.torch.ddp_hook(
        optimizer, plan=plan((6, "fp32")), model=net, record=path, record_steps=(1, 3)
    )
    ddp.register_comm_hook(state, hook)
    for step in range(5):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        criterion(ddp(x), y).backward()
        optimizer.step()
        if rank == 0:
            net.eval()
            with torch.no_grad():
                criterion(net(x), y)  # nobody calls eval() of a loss
            net.train()
            torch.nn.Linear(2, 2)(torch.ones(1, 2))
        torch.distributed.barrier()
    state.close()


def test_a_recording_is_written_where_all_ranks_are(tmp_path):
    """A forward pass may be of one rank alone, while the others wait for it."""
    path = tmp_path / "run.json"
    run(evaluated, 2, str(path), timeout_s=10)
    assert sum(event["cat"] == "user_annotation" for event in json.loads(path.read_text())["traceEvents"]) == 2
