"""Threads of a hook: they keep nothing alive, and end with what they belong to."""

from __future__ import annotations

import atexit
import concurrent.futures
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """A call of a bound method that does not keep its object: nothing is called once that is gone."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> Any:
        alive = reference()
        return None if alive is None else alive(*arguments)

    return call


class Worker:
    """A daemon thread that runs jobs in order. What a job raises goes to the method `on_error`; later jobs still run.

    The thread keeps neither the worker nor the method's object, and ends after its last job once the worker is gone.
    """

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        _workers.add(self)
        self._jobs: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self.submit: Callable[[Callable[[], Any]], None] = self._jobs.put  # from a job to its thread in one call
        self._on_error = weakly(on_error)
        arguments = self._jobs, self._on_error
        self._thread = threading.Thread(target=_run_jobs, args=arguments, name=name, daemon=True)
        self._thread.start()
        # SimpleQueue.put() may be called from a finalizer wherever that runs; a lock may not.
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def call(self, job: Callable[[], Any]) -> concurrent.futures.Future:
        """What the job returns, or raises: on_error has been called then."""
        outcome: concurrent.futures.Future = concurrent.futures.Future()
        on_error = self._on_error

        def run() -> None:
            try:
                result = job()
            except BaseException as error:
                on_error(error)
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        self._jobs.put(run)
        return outcome

    def stop(self) -> None:
        """Ends the thread after the jobs that are queued."""
        self._jobs.put(None)

    def is_alive(self) -> bool:
        """Whether a job may still run."""
        return self._thread.is_alive()

    def close(self, timeout_s: float) -> bool:
        """stop(), and waits; False if it is still busy after that time."""
        self.stop()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


def _run_jobs(jobs: queue.SimpleQueue, on_error: Callable[[BaseException], None]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        try:
            job()
        except BaseException as error:
            on_error(error)
        del job  # what it holds must not live until the next one comes


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _end_workers() -> None:
    """A thread that comes back from C++ code of torch while the interpreter ends would abort the process. So those that
    have work get a little time; one that waits for a peer does not come back before the process ends."""
    workers = list(_workers)
    for worker in workers:
        worker.stop()
    until = time.monotonic() + 2.0
    for worker in workers:
        worker.close(max(0.0, until - time.monotonic()))
