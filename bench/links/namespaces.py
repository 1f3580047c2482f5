"""Network namespaces of a run: names, commands inside them, removal.

A name is gwlink-PID-START-PART; PID and START (clock ticks since boot) name the process that made it, so that a later
run can tell what a killed run left behind from what a live one uses.
"""

import os
import re
import signal
import subprocess
import time

FOLDER = "/run/netns"
_NAME = re.compile(r"gwlink-(\d+)-(\d+)-\w+")


class CommandError(RuntimeError):
    """A command of ip or tc failed."""


def command(*words, text=None, timeout=30):
    """Runs a short command and returns what it printed."""
    words = [str(word) for word in words]
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError as missing:
        raise CommandError(f"{words[0]} is not installed (Debian: iproute2, util-linux)") from missing
    except subprocess.TimeoutExpired as late:
        raise CommandError(f"{' '.join(words)}: no end after {timeout} s") from late
    if done.returncode != 0:
        raise CommandError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def start_of(pid):
    """Start of a process in clock ticks since boot, None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return int(f.read().rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def prefix():
    """First part of the names that this process makes."""
    return f"gwlink-{os.getpid()}-{start_of(os.getpid())}"


def inside(name):
    """Words to put before a command that is to run in a namespace. /sys is then that of the namespace: UCX reads it."""
    return ["ip", "netns", "exec", name]


def create(name):
    command("ip", "netns", "add", name)


def existing():
    """Names in our form, of all runs."""
    try:
        return sorted(name for name in os.listdir(FOLDER) if _NAME.fullmatch(name))
    except FileNotFoundError:
        return []


def processes(name):
    """Processes whose network namespace this is, without our own."""
    return [int(pid) for pid in command("ip", "netns", "pids", name).split() if int(pid) != os.getpid()]


def stop_processes(name, patience=2.0):
    """Ends what runs in the namespace: politely, after `patience` seconds by force."""
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 5.0)):
        end = time.monotonic() + wait
        pids = processes(name)
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        while pids and time.monotonic() < end:
            time.sleep(0.02)
            pids = processes(name)
        if not pids:
            return


def remove(names):
    """Ends the processes in the namespaces and deletes them; reports what could not be deleted, after trying all."""
    failures = []
    for name in names:
        try:
            stop_processes(name)
            command("ip", "netns", "delete", name)
        except CommandError as error:
            failures.append(str(error))
    if failures:
        raise CommandError("; ".join(failures))


def leftovers():
    """Names of namespaces whose process is gone: what killed runs left behind."""
    gone = []
    for name in existing():
        pid, start = map(int, _NAME.fullmatch(name).groups())
        if start_of(pid) != start:
            gone.append(name)
    return gone
