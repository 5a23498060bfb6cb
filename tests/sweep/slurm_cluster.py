"""A Slurm cluster of two nodes on this host, from Debian's packages, in a folder of its own."""

import os
import secrets
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
NODES = ("node1", "node2")

CONFIGURATION = """
ClusterName=lmsweep
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
KillWait=60
MaxArraySize=3
MinJobAge=36000
MessageTimeout=100
BatchStartTimeout=100
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class CannotStartError(Exception):
    """There is no Slurm here, and why."""


class SlurmCluster:
    """One controller, two nodes with one core each, arrays of three tasks at most, no accounting."""

    def __init__(self, root: Path) -> None:
        missing = [name for name in NEEDED if shutil.which(name, path=_path()) is None]
        if missing or os.geteuid() != 0:
            why = f"{', '.join(missing)} missing" if missing else "only root can start it"
            raise CannotStartError(f"{why} (Debian's packages slurm-wlm and munge)")
        self.root = root
        self.environment = {"SLURM_CONF": str(root / "slurm.conf"), "PATH": _path()}
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.over = threading.Event()
        self.releasing = threading.Thread(target=self._release_what_is_held, daemon=True)

    def __enter__(self) -> "SlurmCluster":
        for folder in ("munge", "state", *(f"spool-{node}" for node in NODES)):
            (self.root / folder).mkdir()
        key = self.root / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        host = socket.gethostname().split(".")[0]
        text = CONFIGURATION.format(host=host, root=self.root, ports=_free_ports(3))
        (self.root / "slurm.conf").write_text(text)
        munge = ("key-file=key", "socket=socket", "pid-file=pid", "log-file=log", "seed-file=seed")
        try:
            self._start("munged", "--foreground", "--force", *(_below(key.parent, word) for word in munge))
            _wait(lambda: (key.parent / "socket").exists(), "munged")
            self._start("slurmctld", "-D")
            for node in NODES:
                self._start("slurmd", "-D", "-N", node)
            _wait(lambda: self.call("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2", "slurmctld")
        except BaseException:
            self._stop()
            raise
        self.releasing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.releasing.join()
        self.call("scancel", "--user=root")
        deadline = time.monotonic() + 120
        while self.call("squeue", "--noheader").strip() and time.monotonic() < deadline:
            time.sleep(0.2)
        self._stop()

    def _stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def call(self, *command: str) -> str:
        """What a command of Slurm prints; nothing when there is no answer."""
        environment = {**os.environ, **self.environment}
        try:
            return subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=120
            ).stdout
        except subprocess.TimeoutExpired:
            return ""

    def jobs(self) -> dict[str, tuple[str, str]]:
        """Of each task of an array that Slurm remembers: its state and its node."""
        lines = self.call("squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%N").splitlines()
        return {job: (state, node) for job, state, node in (line.split("|") for line in lines)}

    def start_again(self, job: str) -> None:
        """Wait until a job that was requeued is in the queue, and let it begin soon: not after two minutes.

        Nor at once, because nodes refuse what they think belongs to the job that they have just ended.
        """
        _wait(lambda: self.jobs()[job][0] == "PENDING", f"the end of job {job}")
        self.call("scontrol", "update", f"JobId={job}", "StartTime=now+4seconds")

    def _release_what_is_held(self) -> None:
        """As an administrator does: slow nodes refuse a job that comes back too soon, and Slurm holds it."""
        while not self.over.wait(2.0):
            for line in self.call("squeue", "-h", "-r", "-t", "PENDING", "-o", "%i|%r").splitlines():
                job, reason = line.split("|")
                if "held" in reason.lower():
                    self.call("scontrol", "release", job)

    def _start(self, *command: str) -> None:
        log = (self.root / f"{len(self.daemons)}-{command[0]}.out").open("wb")
        environment = {**os.environ, **self.environment}
        with log:
            self.daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _below(folder: Path, word: str) -> str:
    option, name = word.split("=")
    return f"--{option}={folder / name}"


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for place in sockets:
        place.bind(("127.0.0.1", 0))
    ports = [place.getsockname()[1] for place in sockets]
    for place in sockets:
        place.close()
    return ports


def _wait(condition, what: str, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise CannotStartError(f"{what} did not come within {seconds:.0f} s")
        time.sleep(0.1)
