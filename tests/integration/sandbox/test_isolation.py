"""What a tool inside the sandbox can see and reach. Each check proves first that it would be seen outside."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.integration.sandbox.pool import CANARY, Pool, processes_that_say
from workers.supervisor.port import NotStarted

pytestmark = pytest.mark.timeout(60)


def test_the_report_names_what_the_self_test_proved(pool: Pool) -> None:
    assert pool.layers is not None
    assert {"bubblewrap", "namespace:net", "no-capabilities", "rlimits"} <= set(pool.layers)
    completed = pool.completed("shell.run", {"argv": ["true"]})
    assert (completed.sandbox.strength, list(completed.sandbox.layers)) == ("N", pool.layers)


@pytest.mark.parametrize("root", ["/etc", "/tmp", "/var", "/home", "/root", "/dev/shm"])
def test_sees_no_canary_below(pool: Pool, reachable_tmp_path: Path, root: str) -> None:
    assert pool.canary.read_text() == CANARY
    output = pool.shell(
        f"grep -r -D skip -l -s {CANARY} {root} --exclude-dir=proc --exclude-dir=usr;"
        f"ls -A {pool.canary} {reachable_tmp_path}"
    )
    assert output["stdout"]["text"] == ""
    assert output["exit_code"] != 0


def test_sees_nothing_of_the_host_but_usr_and_its_own_folders(pool: Pool) -> None:
    names = set(pool.shell("ls /")["stdout"]["text"].split())
    assert {"usr", "etc", "proc", "dev", "tmp", "work"} <= names
    assert names <= {
        "usr", "etc", "proc", "dev", "tmp", "work", "bin", "sbin", "lib", "lib32", "lib64", "libx32"
    }  # fmt: skip
    accounts = pool.shell("cat /etc/passwd; ls /etc")["stdout"]["text"]
    assert "shadow" not in accounts
    assert accounts.count(":x:") == 2


def test_sees_no_workspace_of_another_session(pool: Pool) -> None:
    pool.completed("fs.write", {"path": "secret", "content": CANARY}, session_id="other")
    assert (pool.workspace("other") / "secret").read_text() == CANARY
    output = pool.shell(
        f"grep -r -D skip -l -s {CANARY} / --exclude-dir=proc --exclude-dir=usr; cat ../workspace-other/*"
    )
    assert output["stdout"]["text"] == ""


def test_sees_no_environment_and_no_descriptor_of_the_pool(pool: Pool) -> None:
    environment = Path(f"/proc/{pool.process.pid}/environ").read_bytes()
    assert CANARY.encode() in environment
    held = {os.readlink(link) for link in Path(f"/proc/{pool.process.pid}/fd").iterdir()}
    assert str(pool.canary) in held
    names = {line.split("=")[0] for line in pool.shell("env")["stdout"]["text"].splitlines()}
    assert names == {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "PWD"}
    assert pool.python("import os; print(sorted(os.listdir('/proc/self/fd')))") == "['0', '1', '2', '3']\n"
    assert pool.python("import os; print(len(open('/proc/1/cmdline').read()) > 0, os.getppid())").startswith(
        "True"
    )


def test_spawner_and_supervisors_hold_the_lock_and_nothing_else_of_the_pool(pool: Pool) -> None:
    def held(pid: int) -> set[str]:
        return {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}

    marker = "300.17"
    number = pool.begin("shell.run", {"argv": ["sleep", marker]})
    [spawner] = [pid for pid in [pool.spawner_pid] if held(pid)]
    assert str(pool.lock) in held(spawner)
    assert str(pool.canary) not in held(spawner)
    pool.stop(number, "seen")
    pool.outcome(number)
    assert processes_that_say(marker) == []


def test_leaves_nothing_for_the_next_execution(pool: Pool) -> None:
    planted = pool.shell(
        "for place in ~ /tmp /dev/shm; do echo planted > $place/planted && echo $place; done;"
        "echo 'export PLANTED=1' > ~/.profile; (setsid sleep 300.25 &) ; echo kept > planted"
    )
    assert planted["stdout"]["text"].split() == ["/tmp", "/tmp", "/dev/shm"]
    found = pool.shell(
        "ls -A ~ /tmp /dev/shm; env; ps -e 2>/dev/null; ls /proc | grep -c '^[0-9]'; cat planted"
    )
    text = found["stdout"]["text"]
    assert "PLANTED" not in text
    assert "planted" not in text
    assert text.endswith("kept\n")
    assert processes_that_say("300.25") == []


def test_reaches_no_network(pool: Pool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        program = (
            "import socket\n"
            f"for where in (('127.0.0.1', {port}), ('169.254.169.254', 80), ('192.0.2.1', 80)):\n"
            "    try:\n        socket.create_connection(where, 2); print('reached', where)\n"
            "    except OSError: print('refused')\n"
            "try: socket.getaddrinfo('example.org', 80); print('resolved')\n"
            "except OSError: print('refused')\n"
        )
        assert pool.python(program) == "refused\n" * 4


def test_cannot_change_the_kernels_settings_or_the_system(pool: Pool) -> None:
    output = pool.shell(
        "cd /proc/sys/kernel; for f in hostname core_pattern; do"
        " v=$(cat $f); echo $v > $f && echo WROTE; done;"
        "touch /usr/x /etc/x /x /bin/x /dev/x && echo WROTE;"
        "echo b > /proc/sysrq-trigger && echo WROTE; exit 0"
    )
    assert "WROTE" not in output["stdout"]["text"]
    assert output["stderr"]["text"].count("Read-only file system") >= 5


def test_gains_no_privilege(pool: Pool) -> None:
    assert pool.shell("id -u; id -g; unshare -Ur id -u")["stdout"]["text"].split() == ["65534", "65534"]
    status = pool.shell("grep -E '^(Cap|NoNewPrivs)' /proc/self/status")["stdout"]["text"].split()
    assert status[status.index("CapEff:") + 1] == "0" * 16
    assert status[status.index("CapBnd:") + 1] == "0" * 16
    assert status[status.index("NoNewPrivs:") + 1] == "1"


def test_workspace_is_as_the_capabilities_say(pool: Pool) -> None:
    script = "touch probe && echo written; ls / | grep -c '^work$'; pwd"

    def seen(*capabilities: str) -> list[str]:
        text = pool.shell(script, capabilities=frozenset(("SHELL_EXEC", *capabilities)))["stdout"]["text"]
        return str(text).split()

    assert seen("FILE_READ", "FILE_WRITE") == ["written", "1", "/work"]
    assert seen("FILE_READ") == ["1", "/work"]
    # Without a workspace it starts in the fresh scratch folder, where it may write.
    assert seen() == seen("FILE_WRITE") == ["written", "0", "/tmp"]


def test_limits_are_set(pool: Pool) -> None:
    limits = pool.shell("ulimit -c; ulimit -n; umask")["stdout"]["text"].split()
    assert limits == ["0", "1024", "0022"]
    too_large = pool.shell(
        "truncate -s 1T big; head -c 600M /dev/zero > big; ls -l big | cut -d' ' -f5; rm big"
    )
    assert too_large["stdout"]["text"].split() == [str(512 * 1024**2)]
    scratch = pool.shell("head -c 300M /dev/zero > /tmp/big; stat -c %s /tmp/big")
    assert int(scratch["stdout"]["text"]) <= 256 * 1024**2


def test_git_and_a_test_run_work_inside(pool: Pool) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    commands = [
        ["git", "init", "-q", "repository"],
        ["git", "-C", "repository", *who, "commit", "-q", "--allow-empty", "-m", "one"],
        ["git", "-C", "repository", "status", "--short"],
        ["git", "-C", "repository", "log", "--format=%s"],
    ]
    pool.completed(
        "fs.write",
        {
            "path": "repository/test_it.py",
            "make_folders": True,
            "content": "import unittest\nclass T(unittest.TestCase):\n def test_one(self): pass\n",
        },
    )
    outputs = [pool.completed("shell.run", {"argv": argv}).output for argv in commands]
    assert [output["exit_code"] for output in outputs] == [0, 0, 0, 0], outputs
    assert outputs[3]["stdout"]["text"] == "one\n"
    ran = pool.completed("shell.run", {"argv": ["python3", "-m", "unittest"], "cwd": "repository"}).output
    assert (ran["exit_code"], "OK" in ran["stderr"]["text"]) == (0, True)


def test_a_repository_that_came_from_outside_is_not_of_dubious_ownership(pool: Pool) -> None:
    pool.shell("git init -q given", session_id="given")
    output = pool.shell("git -C given status --short && awk 'BEGIN { print 1 }'", session_id="given")
    assert (output["exit_code"], output["stdout"]["text"]) == (0, "1\n")


@pytest.mark.root
def test_refuses_to_run_tools_from_uid_0(reachable_tmp_path: Path) -> None:
    pool = Pool(reachable_tmp_path, as_root=True)
    try:
        assert pool.refusal is not None
        assert pool.refusal[0] == "SANDBOX_UNAVAILABLE"
        outcome = pool.execute("shell.run", {"argv": ["true"]})
        assert isinstance(outcome, NotStarted)
        assert (outcome.code, "uid 0" in outcome.message) == ("SANDBOX_UNAVAILABLE", True)
    finally:
        pool.close()
