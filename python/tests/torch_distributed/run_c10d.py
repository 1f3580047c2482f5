#!/usr/bin/env python3
"""Runs PyTorch's own tests of c10d backends, which torch 2 has in its wheel, with the backend gradwire.

    run_c10d.py [--backend gloo|gradwire|gradwire-as-gloo] [--nmse E] [--ranks N] [-k TEXT] ...

gradwire-as-gloo: groups that ask for "gloo" get this backend, so that tests which torch has for Gloo alone run, too.
--nmse: with that error set. Each test forks its ranks. Needs the package expecttest. Ends with a line

    N passed, N skipped, N failed
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import unittest
from collections import Counter


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="gradwire-as-gloo", choices=["gloo", "gradwire", "gradwire-as-gloo"])
    parser.add_argument("--nmse", type=float)
    parser.add_argument("--small-len", type=int, help="values from which sums are compressed")
    parser.add_argument("--tolerance", type=float, default=0.0, help="that numbers may differ by in all comparisons")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("-k", default="", help="only tests with this text in their name")
    parser.add_argument("--json", help="a file for the outcome of each test")
    parser.add_argument("--passed-in", metavar="FILE", help="only tests that passed in the run that wrote this file")
    parser.add_argument("--timeout", type=int, default=60, help="seconds of a test")
    return parser.parse_args()


def _prepare(chosen: argparse.Namespace) -> None:
    """Before the tests are imported: these look at the environment then."""
    folder = tempfile.mkdtemp(prefix="c10d-")
    os.makedirs(os.path.join(folder, "barrier"))
    settings = {
        "BACKEND": "gradwire" if chosen.backend == "gradwire" else "gloo",
        "WORLD_SIZE": str(chosen.ranks),
        "TEMP_DIR": folder,
        "INIT_METHOD": "",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
    }
    os.environ.update(settings)
    if chosen.backend == "gloo":
        return
    import gradwire.torch
    import torch.distributed as dist
    from gradwire.torch import backend

    if chosen.nmse is not None:
        gradwire.torch.set_default_error(chosen.nmse)
    if chosen.small_len is not None:
        options = backend.BackendOptions
        backend.BackendOptions = lambda **given: options(**{"small_len": chosen.small_len, **given})
    plugins = dist.Backend._plugins
    if chosen.backend == "gradwire-as-gloo":
        plugins["GLOO"] = dist.Backend._BackendPlugin(lambda opts, _: plugins["GRADWIRE"].creator_fn(opts, None), True)
        dist.Backend.backend_type_map["gloo"] = (
            dist.ProcessGroup.BackendType.CUSTOM
        )  # else C++ code casts to Gloo's class
    else:
        from torch.testing._internal import common_distributed

        for names in common_distributed.DistTestCases.backend_feature.values():
            if "gloo" in names:
                names.add("gradwire")


def _tests(chosen: argparse.Namespace) -> unittest.TestSuite:
    import torch
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test

    common_distributed.TIMEOUT_DEFAULT = chosen.timeout

    class C10dTest(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    # Of torch's comparisons, where these have no larger ones.
    C10dTest._precision = C10dTest._rel_tol = chosen.tolerance
    wanted = None
    if chosen.passed_in:
        with open(chosen.passed_in) as file:
            wanted = {name for name, (kind, _) in json.load(file).items() if kind == "passed"}
    suite = unittest.TestSuite()
    for name in unittest.TestLoader().getTestCaseNames(C10dTest):
        if chosen.k in name and (wanted is None or name in wanted):
            suite.addTest(C10dTest(name))
    return suite


class _Outcomes(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, str]] = {}

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802  unittest's names
        super().startTest(test)
        self._begin = time.monotonic()

    def _note(self, test: unittest.TestCase, kind: str, why: str = "") -> None:
        name = test.id().split(".")[-1]
        if self.found.get(name, ("",))[0] != "failed":
            self.found[name] = (kind, why)
            lines = [line for line in why.splitlines() if line.strip()]
            print(
                f"{kind} {name} ({time.monotonic() - self._begin:.1f} s) {lines[-1][:200] if lines else ''}", flush=True
            )

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._note(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self._note(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        self._note(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure  # noqa: N815


def main() -> int:
    chosen = _arguments()
    _prepare(chosen)
    outcomes = _Outcomes()
    _tests(chosen).run(outcomes)
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(outcomes.found, file, indent=1)
    count = Counter(kind for kind, _ in outcomes.found.values())
    print(f"{count['passed']} passed, {count['skipped']} skipped, {count['failed']} failed")
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
