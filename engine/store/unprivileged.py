"""How PostgreSQL's programs are started: they refuse to run as root, and some need an account with a name.

As an ordinary user they are run as they are. As root they run in a user namespace of their own, where root is an
ordinary user: files stay root's, no mode changes and no account is added. Where the kernel refuses such a namespace,
they run as the account `nobody`, which then owns what it has to write. Nothing outside the data folder is changed.
"""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PATIENCE = 150.0  # seconds; longer than pg_ctl's own


class LauncherError(Exception):
    """PostgreSQL's programs cannot be run from here. The message says why and what to do."""


@dataclass(frozen=True)
class Launcher:
    """A way to run a program: with `prefix` before it, as the account `account` when that is not None."""

    prefix: tuple[str, ...] = ()
    account: pwd.struct_passwd | None = None

    @property
    def uid(self) -> int:
        """The user id that owns what the program writes, as seen from here."""
        return os.geteuid() if self.account is None else self.account.pw_uid

    def give(self, path: Path) -> None:
        """Let the program own `path`, which must be inside the data folder or made by us."""
        if self.account is not None:
            os.chown(path, self.account.pw_uid, self.account.pw_gid, follow_symlinks=False)

    def run(self, command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        """Run `command` in `folder` to its end, in a session of its own and with none of our environment's secrets."""
        account = self.account
        return subprocess.run(
            [*self.prefix, *command],
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            start_new_session=True,  # Ctrl-C in our terminal is not meant for the database
            umask=0o077,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )


def find_launcher(home: Path, program: Path) -> Launcher:
    """Choose how to run PostgreSQL in the folder `home`, trying `program --version`. Raises LauncherError."""
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        return Launcher()
    named = next((entry for entry in pwd.getpwall() if entry.pw_uid != 0), None)
    if named is not None and (unshare := shutil.which("unshare")):
        uid = named.pw_uid  # initdb looks its own account up, so it has to be one that exists
        inside = Launcher((unshare, "--user", f"--map-user={uid}", f"--map-group={uid}"))
        if _works(inside, program, home):
            return inside
    if os.geteuid() != 0:
        raise LauncherError(f"user {os.geteuid()} has no entry in /etc/passwd, and a user namespace is refused")
    try:
        nobody = Launcher(account=pwd.getpwnam("nobody"))
    except KeyError:
        raise LauncherError("as root it needs a user namespace, which is refused, or an account 'nobody'") from None
    for folder in (home.parent, home):
        folder.chmod(folder.stat().st_mode | 0o011)  # to pass through, not to look around
    if not _works(nobody, program, home):
        raise LauncherError(
            f"as root without user namespaces it runs as 'nobody', who cannot reach {home} or {program}; "
            "run Nightbook as an ordinary user"
        )
    return nobody


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _works(launcher: Launcher, program: Path, folder: Path) -> bool:
    try:
        # Standing in the folder is not enough: PostgreSQL goes there by its full path.
        enter = ["/bin/sh", "-c", 'cd "$0" && exec "$1" --version', str(folder), str(program)]
        return launcher.run(enter, folder).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
