"""What a supervisor enforces and reports: time, output, the process tree, stopping, and a pool that dies."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import select
import signal
import time
from pathlib import Path

import pytest

from tests.integration.sandbox.pool import Pool, children_of, processes_that_say
from tests.support.wait import until
from workers.supervisor.port import Completed, Failed, NotStarted
from workers.supervisor.report import read_orphan

pytestmark = pytest.mark.timeout(60)
MEMORY_GROWTH_BYTES_MAX = 32 * 1024**2


def peak_memory_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def test_a_program_that_ends_by_itself_has_completed_whatever_its_exit_code(pool: Pool) -> None:
    assert pool.shell("exit 7")["exit_code"] == 7
    killed = pool.shell("kill -SEGV $$")
    assert (killed["exit_code"], killed["signal"]) == (128 + signal.SIGSEGV, signal.SIGSEGV)


def test_a_program_that_is_not_there_never_began(pool: Pool) -> None:
    failed = pool.failed("shell.run", {"argv": ["no-such-program"]})
    assert (failed.code, failed.began) == ("TOOL_FAILED", False)
    failed = pool.failed("shell.run", {"argv": ["true"], "cwd": "no-such-folder"})
    assert (failed.code, failed.began) == ("TOOL_FAILED", False)


def test_a_program_cannot_pass_for_a_launcher_that_failed(pool: Pool) -> None:
    output = pool.shell("echo 'bwrap: execvp sh: No such file or directory' >&2; exit 1")
    assert output["exit_code"] == 1


def test_ends_at_the_wall_limit_of_the_contract_and_of_the_call(pool: Pool) -> None:
    failed = pool.failed("shell.run", {"argv": ["sleep", "300.31"]}, wall_limit_ms=300)
    assert (failed.code, failed.began) == ("WALL_LIMIT", True)
    assert 300 <= failed.duration_ms < 5_000
    failed = pool.failed("shell.run", {"argv": ["sleep", "300.31"], "timeout_ms": 200})
    assert failed.code == "WALL_LIMIT"
    assert processes_that_say("300.31") == []


def test_what_an_ended_program_had_changed_is_named(pool: Pool) -> None:
    script = "echo one > changed-before-the-end; sleep 300.32"
    failed = pool.failed("shell.run", {"argv": ["sh", "-c", script]}, wall_limit_ms=500)
    digest = "sha256:" + hashlib.sha256(b"one\n").hexdigest()
    assert [(entity.name, entity.before, entity.after) for entity in failed.affected] == [
        ("changed-before-the-end", None, digest)
    ]


def test_a_program_that_closes_its_output_still_meets_the_wall_limit(pool: Pool) -> None:
    script = "exec >&- 2>&-; sleep 300.33"
    assert pool.failed("shell.run", {"argv": ["sh", "-c", script]}, wall_limit_ms=300).code == "WALL_LIMIT"


def test_nothing_outlives_the_main_program_whatever_it_detached(pool: Pool) -> None:
    script = "for i in $(seq 50); do setsid sh -c 'trap \"\" TERM HUP INT; sleep 300.34' & done; echo main"
    output = pool.shell(script)
    assert (output["exit_code"], output["stdout"]["text"]) == (0, "main\n")
    assert output["duration_ms"] < 10_000
    assert processes_that_say("300.34") == []


@pytest.mark.timeout(110)
def test_gigabytes_of_output_cost_no_memory(own_pool: Pool) -> None:
    size_bytes = 3 * 1000**3  # ninety times what memory may grow by
    before = peak_memory_bytes(own_pool.process.pid), peak_memory_bytes(own_pool.spawner_pid)
    number = own_pool.begin(
        "shell.run", {"argv": ["head", "-c", str(size_bytes), "/dev/zero"]}, wall_limit_ms=90_000
    )
    outcome = own_pool.outcome(number)
    assert isinstance(outcome, Completed), outcome
    stdout = outcome.output["stdout"]
    assert (stdout["size_bytes"], stdout["truncated"], outcome.truncated) == (size_bytes, True, ("stdout",))
    after = peak_memory_bytes(own_pool.process.pid), peak_memory_bytes(own_pool.spawner_pid)
    grown = [late - early for early, late in zip(before, after, strict=True)]
    print("grown by", grown, "supervisor", outcome.resources["supervisor_peak_memory_bytes"])
    assert max(grown) < MEMORY_GROWTH_BYTES_MAX
    # The supervisor was forked from the spawner, so what it has beyond that is its growth.
    supervisor = outcome.resources["supervisor_peak_memory_bytes"]
    assert supervisor - after[1] < MEMORY_GROWTH_BYTES_MAX


def test_output_is_kept_to_the_cap_and_described_whole(pool: Pool) -> None:
    program = "import sys; sys.stdout.buffer.write('ä'.encode() * 5001)"
    argv = ["python3", "-c", program]
    stdout = pool.completed("shell.run", {"argv": argv}, output_limit_bytes=2 * 4095).output["stdout"]
    whole = "ä".encode() * 5001
    assert stdout["text"] == "ä" * 2047, "the character that the cap divides is left out"
    assert (stdout["size_bytes"], stdout["truncated"]) == (len(whole), True)
    assert stdout["sha256"] == hashlib.sha256(whole).hexdigest()


def test_bytes_that_are_no_text_come_as_base64(pool: Pool) -> None:
    output = pool.shell(
        "printf '\\377\\376\\000\\033]0;x\\007'; printf 'é' >&2; touch \"$(printf 'a\\377b')\""
    )
    assert output["stdout"]["encoding"] == "base64"
    assert output["stdout"]["bytes"] == "//4AG10wO3gH"
    assert output["stderr"]["text"] == "é"
    assert output["changed_files"][0]["path_base64"] == "Yf9i"
    listed = pool.completed("fs.list", {}).output["entries"]
    assert [entry["name"] for entry in listed if entry.get("name_base64") == "Yf9i"] == ["a\ufffdb"]
    pool.shell("rm a*")


def test_stdin_arrives_and_ends(pool: Pool) -> None:
    completed = pool.completed("shell.run", {"argv": ["wc", "-c"], "stdin": "häuser"})
    assert completed.output["stdout"]["text"] == "7\n"
    assert pool.shell("cat; echo end")["stdout"]["text"] == "end\n"


def test_too_many_processes_end_the_tree(pool: Pool) -> None:
    program = "import os, signal\nwhile True:\n    if os.fork() == 0: signal.pause()"
    failed = pool.failed("shell.run", {"argv": ["python3", "-c", program]}, wall_limit_ms=15_000)
    assert (failed.code, failed.began) == ("RESOURCE_LIMIT", True)
    assert failed.duration_ms < 10_000


def test_stopping_ends_the_whole_tree(pool: Pool) -> None:
    number = pool.begin("shell.run", {"argv": ["sh", "-c", "setsid sleep 300.35 & sleep 300.36"]})
    until(lambda: processes_that_say("300.35"), 30, "the tool runs")
    pool.stop(number, "an operator said so")
    outcome = pool.outcome(number)
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.message, outcome.began) == ("CANCELLED", "an operator said so", True)
    assert processes_that_say("300.35") == processes_that_say("300.36") == []


def test_a_stopped_process_is_ended_as_well(pool: Pool) -> None:
    number = pool.begin("shell.run", {"argv": ["sh", "-c", "echo; kill -STOP $$; : 300.37"]})
    until(lambda: processes_that_say("300.37"), 30, "the tool runs")
    pool.stop(number, "enough")
    assert isinstance(pool.outcome(number), Failed)
    assert processes_that_say("300.37") == []


def test_nothing_begins_after_start_by_or_without_the_claim(pool: Pool) -> None:
    now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    late = pool.execute("shell.run", {"argv": ["touch", "late"]}, start_by_boottime_ns=now_ns)
    assert isinstance(late, NotStarted)
    assert late.code == "START_BY_PASSED"
    lost = pool.execute("shell.run", {"argv": ["touch", "lost"]}, claim_holds=False)
    assert isinstance(lost, NotStarted)
    assert lost.code == "CLAIM_NOT_HELD"
    assert not {"late", "lost"} & {path.name for path in pool.workspace().iterdir()}


def test_a_call_that_is_stopped_before_it_began_has_not_started(pool: Pool) -> None:
    pool.stop(10_001, "too late")
    stopped = pool.outcome(pool.begin("shell.run", {"argv": ["touch", "stopped"]}, number=10_001))
    assert isinstance(stopped, NotStarted)
    assert (stopped.code, stopped.message) == ("CANCELLED_BEFORE_START", "too late")
    assert not (pool.workspace() / "stopped").exists()


def test_a_call_whose_supervisor_does_not_come_in_time_does_not_wait_for_it(own_pool: Pool) -> None:
    until(lambda: children_of(own_pool.spawner_pid), 30, "a supervisor stands by")
    frozen = [own_pool.spawner_pid, *children_of(own_pool.spawner_pid)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    start_by_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 300_000_000
    late = own_pool.execute("shell.run", {"argv": ["touch", "late"]}, start_by_boottime_ns=start_by_ns)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    assert isinstance(late, NotStarted)
    assert late.code == "START_BY_PASSED"
    assert isinstance(own_pool.execute("shell.run", {"argv": ["true"]}), Completed)
    assert not (own_pool.workspace() / "late").exists()
    [file] = until(lambda: list(own_pool.orphans.glob("*.json")), 30, "the late one says what it did")
    assert isinstance(read_orphan(file)[1], NotStarted)


def test_an_unknown_tool_and_a_missing_workspace_start_nothing(pool: Pool) -> None:
    unknown = pool.execute("no.tool", {})
    assert isinstance(unknown, NotStarted)
    assert unknown.code == "TOOL_UNAVAILABLE"
    missing = pool.execute("fs.list", {}, workspace=pool.folder / "nowhere")
    assert isinstance(missing, NotStarted)
    assert missing.code == "SANDBOX_SETUP_FAILED"


def test_many_threads_each_get_their_own_outcome(pool: Pool) -> None:
    numbers = {pool.begin("shell.run", {"argv": ["echo", str(word)]}): word for word in range(24)}
    for number, word in numbers.items():
        outcome = pool.outcome(number)
        assert isinstance(outcome, Completed), outcome
        assert outcome.output["stdout"]["text"] == f"{word}\n"


def test_a_killed_pool_takes_the_tree_with_it_and_the_outcome_is_kept(own_pool: Pool) -> None:
    script = "echo said; setsid sleep 300.38 & echo > running; sleep 300.39"
    number = own_pool.begin("shell.run", {"argv": ["sh", "-c", script]})
    until((own_pool.workspace() / "running").exists, 30, "the tool runs")
    own_pool.process.kill()
    own_pool.process.wait()
    killed_at = time.monotonic()
    until(lambda: not processes_that_say("300.3"), 30, "the tree is gone")
    print("tree gone after", round((time.monotonic() - killed_at) * 1000), "ms")
    [file] = until(lambda: list(own_pool.orphans.glob("*.json")), 30, "the outcome is on disk")
    names, outcome = read_orphan(file)
    assert (names["invocation_id"], names["claim"]) == (f"invocation-{number}", f"claim-{number}")
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.began, outcome.raw_output) == ("POOL_LOST", True, b"said\n")
    until(lambda: not process_is_alive(own_pool.spawner_pid), 30, "the spawner is gone")


def test_the_lock_is_free_only_when_the_last_supervisor_is_gone(own_pool: Pool) -> None:
    own_pool.begin("shell.run", {"argv": ["sleep", "300.41"]})
    [launcher, *_] = until(lambda: processes_that_say("300.41"), 30, "the tool runs")
    with own_pool.lock.open("r+b") as lock:
        assert not is_free(lock.fileno())
        own_pool.process.kill()
        own_pool.process.wait()
        until(lambda: is_free(lock.fileno()), 30, "the lock is free")
    assert not process_is_alive(launcher)
    assert list(own_pool.orphans.glob("*.json")), "the outcome was written before the lock was given up"


@pytest.mark.parametrize("attempt", range(12))
def test_a_killed_supervisor_takes_the_tree_with_it_and_the_pool_is_told(
    own_pool: Pool, attempt: int
) -> None:
    """Also while the sandbox is set up, when its launcher has not yet bound itself to its parent."""
    marker = f"300.4{attempt:02}"
    number = own_pool.begin("shell.run", {"argv": ["sleep", marker]})
    until(lambda: processes_that_say(marker), 30, "the launcher runs")
    # No wait for anything: each attempt meets another moment of the 5 ms that a set-up takes.
    select.select([], [], [], attempt / 2_000)
    killed = children_of(own_pool.spawner_pid)
    for supervisor in killed:
        os.kill(supervisor, signal.SIGKILL)
    outcome = own_pool.outcome(number)
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.began) == ("SUPERVISOR_LOST", True)
    until(lambda: not processes_that_say(marker), 30, "the tree is gone")
    # The one that stood by was killed too; while it dies it may still take a line, and nothing runs on it.
    until(lambda: not any(map(process_is_alive, killed)), 30, "the killed are gone")
    assert isinstance(own_pool.execute("shell.run", {"argv": ["true"]}), Completed)


def test_without_a_spawner_nothing_starts(own_pool: Pool) -> None:
    os.kill(own_pool.spawner_pid, signal.SIGKILL)
    outcomes = [own_pool.execute("shell.run", {"argv": ["true"]}) for _ in range(3)]
    # The one that stood by may still take a call; after it there is nobody.
    assert isinstance(outcomes[-1], NotStarted)
    assert outcomes[-1].code == "SUPERVISOR_LOST"


def test_signals_to_the_pool_s_group_do_not_end_the_spawner(own_pool: Pool) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(own_pool.spawner_pid, number)
    assert own_pool.shell("trap - INT; kill -INT $$")["signal"] == signal.SIGINT


def test_a_closed_pool_leaves_no_process(own_pool: Pool) -> None:
    assert isinstance(own_pool.execute("shell.run", {"argv": ["true"]}), Completed)
    supervisors = children_of(own_pool.spawner_pid)
    own_pool.close()
    processes = [own_pool.spawner_pid, *supervisors]
    assert len(processes) >= 2
    until(lambda: not any(map(process_is_alive, processes)), 30, "every process of the pool is gone")


def process_is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def is_free(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
