"""What notebook code can reach, and what not: from a shell and from Python, as root and as an ordinary user."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.waiting import until
from engine.sandbox.client import Sandbox
from engine.sandbox.isolation import IsolationUnavailable, Place, bounds_tmpfs, choose, python_prefixes, within
from engine.sandbox.processes import kill_marked, marked
from engine.sandbox.spawn import spawn
from tests.engine.sandbox.harness import Notebook, config_of, needs_bubblewrap

ROOT = Path(__file__).parents[3]
SECRET = "the-servers-own-secret"

# Run inside: says what it could reach. Nothing may be in the list.
PROBE = """
import os, glob, subprocess
reached = []
if {secret!r} in repr(dict(os.environ)): reached.append('environment')
for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/task/*/environ'):
    try:
        if {secret!r}.encode() in open(path, 'rb').read(): reached.append(path)
    except OSError: pass
for path in {paths!r}:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read()
        if not os.path.isdir(path) or os.listdir(path): reached.append(path)
    except OSError: pass
for root in glob.glob('/proc/[0-9]*/root/etc/shadow') + glob.glob('/proc/[0-9]*/cwd/../*/shim.sock'):
    reached.append(root)
for command in ('mount -o remount,rw /usr', 'unshare -Urm mount -o remount,rw /usr', 'umount -l /usr',
                'mount -t tmpfs none /mnt', 'touch /usr/written', 'chroot / true', 'mknod /tmp/disk b 254 0',
                'unshare -Um --keep-caps mount -o remount,bind,rw /proc/sys',
                'unshare -Um --keep-caps umount -l /proc/sys', 'unshare -Um --keep-caps mount --bind /proc /tmp',
                'unshare -Umpf --keep-caps mount -t proc proc /tmp',
                'unshare -Urm sh -c "umount -l /workspace && ls /workspace/../sandboxes"'):
    if subprocess.run(command, shell=True, capture_output=True).returncode == 0: reached.append(command)
for prefix in {prefixes!r}:
    try:
        open(os.path.join(prefix, 'written'), 'w').close(); reached.append('write ' + prefix)
    except OSError: pass
caps = [l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapPrm', 'CapBnd'))]
if any(int(cap, 16) for cap in caps): reached.append('capabilities')
print('reached:', reached)
"""


def probe(tmp_path: Path) -> str:
    paths = [
        "/etc/shadow", "/etc/ssh", "/root/.ssh", "/root/.bashrc", "/home", "/var/lib", "/old_root", "/dev/vda",
        "/dev/sda", str(tmp_path / "data-secret"), str(tmp_path / "sandboxes"), str(tmp_path / "workspaces"),
        str(tmp_path / "sandboxes" / "two" / "shim.sock"), str(tmp_path / "workspaces" / "two" / "theirs"),
    ]  # fmt: skip
    return PROBE.format(secret=SECRET, paths=paths, prefixes=list(python_prefixes(sys.executable)))


@needs_bubblewrap
@pytest.mark.trio
async def test_under_bubblewrap_nothing_of_the_server_can_be_reached(
    open_sandbox: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTBOOK_TOKEN", SECRET)
    (tmp_path / "data-secret").write_text(SECRET)
    other = await open_sandbox("bubblewrap", "two")
    await other.run("shell", "echo private > theirs")
    notebook = await open_sandbox("bubblewrap", "one")
    assert notebook.sandbox.isolation == "bubblewrap"
    _, text = await notebook.run("python", probe(tmp_path))
    assert text == "reached: []\n"
    await notebook.run("python", f"open('probe.py', 'w').write({probe(tmp_path)!r})")
    _, text = await notebook.run("shell", "python probe.py")
    assert text == "reached: []\r\n"
    _, text = await notebook.run("shell", "ls -A /; ls -A /workspace; cat /proc/1/cmdline | tr '\\0' ' ' | head -c 30")
    assert "sandboxes" not in text
    # /tmp is this notebook's own, and the same for its cells.
    await notebook.run("shell", "echo shared > /tmp/note")
    assert (await notebook.run("python", "print(open('/tmp/note').read())"))[1] == "shared\n\n"
    assert (await other.run("shell", "cat /tmp/note"))[0]["status"] == "error"
    # What a notebook needs works.
    ended, text = await notebook.run(
        "python",
        "import ssl, socket, getpass, tempfile, multiprocessing as m\n"
        "print(socket.getaddrinfo('localhost', 80)[0][0].name, getpass.getuser(), m.Value('i', 3).value)",
    )
    assert ended["status"] == "done", text


# Run inside: what of the machine opens for writing. Nothing is written.
WRITABLE = """
import os
opened = []
def visit(folder):
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_symlink() or folder == '/proc' and entry.name.isdecimal(): continue
        if entry.is_dir():
            try: visit(entry.path)
            except OSError: pass
            continue
        try: os.close(os.open(entry.path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))
        except OSError: continue
        opened.append(entry.path)
for folder in ('/proc', '/sys', '/dev'):
    if os.path.isdir(folder): visit(folder)
names = 'console', 'full', 'null', 'ptmx', 'random', 'tty', 'urandom', 'zero'  # console is the shell cell's terminal
devices = ['/dev/' + name for name in names]
print('opened:', [path for path in opened if path not in devices and not path.startswith('/dev/pts/')])
"""


@needs_bubblewrap
@pytest.mark.trio
async def test_under_bubblewrap_no_setting_of_the_machine_opens_for_writing(open_sandbox: Any) -> None:
    notebook = await open_sandbox("bubblewrap")
    assert (await notebook.run("python", WRITABLE))[1] == "opened: []\n"
    await notebook.run("python", f"open('writable.py', 'w').write({WRITABLE!r})")
    assert (await notebook.run("shell", "python writable.py"))[1] == "opened: []\r\n"
    ended, text = await notebook.run("shell", ": >> /proc/sys/kernel/core_pattern")
    assert ended["status"] == "error", text
    # What belongs to a process stays its own, and settings can be read.
    ended, text = await notebook.run("shell", "echo 600 > /proc/self/oom_score_adj && cat /proc/sys/kernel/pid_max")
    assert ended["status"] == "done", text


def environment(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_bytes().decode()


def descriptors(pid: int) -> dict[str, str]:
    """What each descriptor of a process is."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[fd] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return found


@pytest.mark.trio
async def test_the_shim_itself_inherits_nothing_of_the_server(
    open_sandbox: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("NIGHTBOOK_TOKEN", SECRET)
    notebook = await open_sandbox(mode)
    await notebook.run("python", "1")
    pid = (await notebook.sandbox.status())["pid"]
    assert SECRET not in environment(pid)
    assert os.getsid(pid) == pid
    links = descriptors(pid)
    assert links["0"] == "/dev/null"
    assert links["1"].endswith("/log")
    assert links["2"].endswith("/log")
    shared = set(links.values()) & set(descriptors(os.getpid()).values())
    assert {link for link in shared if link.startswith(("socket:", "pipe:"))} == set()
    _, text = await notebook.run("shell", "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
    if mode == "bubblewrap":
        assert SECRET not in text
    assert SECRET not in (await notebook.run("shell", "env"))[1]


# The same probe, run by a server that is an ordinary user: user 1000 of a user namespace, without any capability.
ORDINARY = """
import json, sys, trio
from pathlib import Path
from engine.sandbox.client import Sandbox, SandboxConfig
async def main():
    tmp = Path(sys.argv[1])
    sandbox = await Sandbox.start(SandboxConfig(tmp / "sandboxes", tmp / "workspaces", isolation=sys.argv[2]), "one", 1)
    await sandbox.execute("run", "python", sys.stdin.read())
    await sandbox.execute("shell", "shell", "id -u; sleep 600 & sleep 600")
    while True:
        for record in await sandbox.records():
            print(json.dumps(record))
            if record["t"] == "ended" and record["run"] == "run":
                await sandbox.stop("shell")
            if record["t"] == "ended" and record["run"] == "shell":
                await sandbox.shutdown()
                return
trio.run(main)
"""


@needs_bubblewrap
def test_as_an_ordinary_user_the_same_holds(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ORDINARY, str(tmp_path), "bubblewrap"]
    if os.geteuid() == 0:
        command = ["unshare", "--user", "--map-user=1000", "--map-group=1000", *command]
        if subprocess.run(["unshare", "--user", "--map-user=1000", "--map-group=1000", "true"]).returncode:
            pytest.skip("user namespaces are refused on this machine")
    done = subprocess.run(
        command, input=probe(tmp_path), capture_output=True, text=True, timeout=60, cwd=ROOT,
        env={**os.environ, "NIGHTBOOK_TOKEN": SECRET},
    )  # fmt: skip
    assert "reached: []" in done.stdout, done.stdout + done.stderr
    assert '"1000\\r\\n"' in done.stdout or os.geteuid() != 0
    assert '"run":"shell","status":"cancelled"' in done.stdout.replace(" ", "")


@needs_bubblewrap
def test_a_data_folder_inside_the_python_environment_stays_hidden(tmp_path: Path) -> None:
    place = Place(
        mode="bubblewrap", workspace=str(tmp_path / "data" / "ws"), temporary=str(tmp_path / "data" / "tmp"),
        python=sys.executable, prefixes=(*python_prefixes(sys.executable), str(tmp_path)),
        hidden=(str(tmp_path / "data"),),
    )  # fmt: skip
    for folder in (place.workspace, place.temporary):
        Path(folder).mkdir(parents=True)
    (tmp_path / "data" / "secret").write_text(SECRET)
    read, write = os.pipe()
    listing = subprocess.run(
        place.command(["/bin/sh", "-c", f"ls -A {tmp_path}/data; ls -A {tmp_path}"], write), pass_fds=(write,),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    os.close(read)
    os.close(write)
    assert listing.stdout == "data\n"


def test_isolation_is_chosen_by_trying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(
        mode="bubblewrap", workspace=str(tmp_path), temporary=str(tmp_path), python=sys.executable,
        prefixes=python_prefixes(sys.executable), hidden=(),
    )  # fmt: skip
    assert choose("process", place) == "process"
    with pytest.raises(ValueError, match="auto, bubblewrap, process"):
        choose("firejail", place)
    monkeypatch.setattr("engine.sandbox.isolation.bubblewrap", lambda: "/nowhere/bwrap")
    assert choose("auto", place) == "process"
    with pytest.raises(IsolationUnavailable, match="/nowhere/bwrap"):
        choose("bubblewrap", place)


def test_the_attempt_ends_by_itself_whoever_dies_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(
        mode="bubblewrap", workspace=str(tmp_path), temporary=str(tmp_path), python=sys.executable,
        prefixes=python_prefixes(sys.executable), hidden=(),
    )  # fmt: skip
    script = f'#!/bin/sh\necho "$@" >{tmp_path}/options\ncut -d" " -f6 /proc/$$/stat >{tmp_path}/session\n'
    (tmp_path / "bwrap").write_text(script)
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr("engine.sandbox.isolation.bubblewrap", lambda: str(tmp_path / "bwrap"))
    assert choose("auto", place) == "bubblewrap"
    assert "--die-with-parent" not in (tmp_path / "options").read_text()
    assert int((tmp_path / "session").read_text()) != os.getsid(0)


@needs_bubblewrap
def test_bubblewrap_carries_the_mark_and_its_program_does_not(tmp_path: Path) -> None:
    place = Place(
        mode="bubblewrap", workspace=str(tmp_path), temporary=str(tmp_path), python=sys.executable,
        prefixes=python_prefixes(sys.executable), hidden=(),
    )  # fmt: skip
    mark = f"test-{os.getpid()}:"
    read, write = os.pipe()
    program = ["/bin/sh", "-c", "env; echo that was all; sleep 600"]
    tree = spawn(place, program, mark, stdin=0, stdout=write, stderr=write, leader=True)
    os.close(write)
    told = b""
    while b"that was all" not in told:
        told += os.read(read, 4096)
    os.close(read)
    assert mark.encode() not in told
    assert {tree.pid, tree.inner} <= set(marked(mark)), "found also while the program is not there yet"
    kill_marked(mark)
    os.waitpid(tree.pid, 0)
    until(lambda: tree.members() == [], "nothing of it is left")


def test_a_bubblewrap_that_cannot_bound_a_tmpfs_is_told_by_its_help(tmp_path: Path) -> None:
    for name, said in (("old", "--tmpfs DEST"), ("new", "--size BYTES  Set size of next argument")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        (tmp_path / name).chmod(0o755)
    assert not bounds_tmpfs(str(tmp_path / "old"))
    assert bounds_tmpfs(str(tmp_path / "new"))
    assert not bounds_tmpfs(str(tmp_path / "none"))


@needs_bubblewrap
@pytest.mark.trio
async def test_auto_is_bubblewrap_where_it_works(tmp_path: Path) -> None:
    sandbox = await Sandbox.start(config_of(tmp_path, "auto"), "one", 1)
    assert sandbox.isolation == "bubblewrap"
    await sandbox.shutdown()


@pytest.mark.trio
async def test_a_link_in_the_workspace_leads_the_shim_nowhere(open_sandbox: Callable[..., Any], tmp_path: Path) -> None:
    notebook: Notebook = await open_sandbox("process")
    target = tmp_path / "elsewhere"
    target.mkdir()
    await notebook.run("shell", f"mkdir .nightbook; ln -s {target} .nightbook/outputs")
    ended, _ = await notebook.run("python", "print('x' * 12_000_000)")
    assert ended["status"] == "done"
    assert ended["whole"] is None
    assert list(target.iterdir()) == []


def test_within_follows_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert within(str(tmp_path / "link" / "x"), str(tmp_path / "real"))
    assert not within(str(tmp_path / "realistic"), str(tmp_path / "real"))
