"""Training over limited links: does the loss feel a hook, and what does a step cost?

    task_digits.py, task_gpt.py, task_resnet.py   models and data that need no download; task_list.py names them
    baselines.py    int8 and int4 blocks, and a bf16 wire where Gloo lacks bf16: all-to-all, sum, all-gather
    hook_list.py    a DDP hook by name: none, bf16, powersgd, int8, int4, gradwire:OPTIONS
    emulate.py      torch.distributed over an emulated link, where no others are permitted
    thc_serving.py  the parameter server beside the ranks of a run
    worker.py       one rank: trains, writes a line of JSON per step
    grid.py         which runs make the results; runs them over links (bench/links)
    summary.py      medians, paired differences with confidence intervals, time to a loss
    plots.py, page.py   docs/results/training.md and its pictures
    thc_workers.py, thc_grid.py, thc_page.py
                    THC with all workers in one process, which may lose packets or be late: docs/results/thc-training.md

The loss does not depend on the link and the time of a step not on the seed. So *curves* (loss over steps: every task,
hook
and seed) run without a limit, *times* (seconds a step: every task, hook and link) run few steps, alternating, and the
time to a loss is composed of both, and said to be.
"""
