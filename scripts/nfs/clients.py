"""What nfs-clients.sh checks, in its guest:  clients.py PANDO

Two hosts: each has a mount name space with its own NFS mount, whose caches it shares with nobody, a
host name, and a host directory.
"""

import os
import re
import subprocess
import sys
import time

PANDO = sys.argv[1]
NFS, MOUNT = "/mnt/nfs", "/mnt/m"
UNCACHED = "noac,hard"


class Host:
    """A client of the export."""

    def __init__(self, name, options=UNCACHED):
        self.name, self.directory = name, f"/tmp/{name}"
        os.makedirs(self.directory, exist_ok=True)
        nfs = f"vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1,nosharecache,{options}"
        begin = (
            f"mount --make-rprivate / && hostname {name} && "
            f"mount -i -t nfs4 -o {nfs} 127.0.0.1:/ {NFS} && echo ready && exec sleep 100000"
        )
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--uts", "bash", "-c", begin], stdout=subprocess.PIPE, text=True
        )
        if self.process.stdout.readline() != "ready\n":
            sys.exit(f"{name}: the export cannot be mounted")

    def start(self, *command, **more):
        environment = {
            **os.environ,
            "PANDO_HOST_DIRECTORY": self.directory,
            "PANDO_IDLE_SECONDS": "2",
        }
        environment.pop("LD_LIBRARY_PATH", None)
        enter = ["nsenter", f"--target={self.process.pid}", "--mount", "--uts"]
        return subprocess.Popen(
            [*enter, *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **more,
        )

    def run(self, *command):
        process = self.start(*command)
        out, _ = process.communicate(timeout=300)
        return process.returncode, out

    def ok(self, *command):
        code, out = self.run(*command)
        if code != 0:
            raise AssertionError(f"{self.name}: {' '.join(command)}: {out}")
        return out

    def fails(self, what, *command):
        code, out = self.run(*command)
        if code == 0 or not re.search(what, out, re.DOTALL):
            raise AssertionError(f"{self.name}: {' '.join(command)}: {code}, no '{what}' in: {out}")

    def pando(self, *arguments):
        return self.ok(PANDO, *arguments)

    def kill_daemons(self):
        """As a crash of the host."""
        for number in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{number}/environ", "rb") as file:
                    own = f"PANDO_HOST_DIRECTORY={self.directory}".encode() in file.read().split(b"\0")
                if own and os.readlink(f"/proc/{number}/exe") == os.path.realpath(PANDO):
                    os.kill(int(number), 9)
            except OSError:
                continue
        self.run("umount", "-l", MOUNT)

    def end(self):
        self.kill_daemons()
        self.process.kill()
        self.process.wait()


def volume(name):
    return f"file://{NFS}/{name}"


def refused_options(alpha):
    """An export whose client caches attributes, or gives up, holds no volume."""
    alpha.ok("mkdir", f"{NFS}/refused")
    for options, what in (("hard", "noac"), ("noac,soft", "soft")):
        host = Host("gamma", options)
        host.fails(what, PANDO, "format", volume("refused"))
        host.end()
    assert alpha.ok("ls", "-A", f"{NFS}/refused") == "", "something was written"


def races(alpha, beta):
    """Of two formats of one place at once, one succeeds, and its volume is whole."""
    won = {"alpha": 0, "beta": 0}
    for round_ in range(8):
        alpha.ok("mkdir", f"{NFS}/race{round_}")
        url = volume(f"race{round_}")
        both = [(host, host.start(PANDO, "format", url)) for host in (alpha, beta)]
        ended = [(host, process.communicate(timeout=300)[0]) for host, process in both]
        ended = [(host, out, both[at][1].returncode) for at, (host, out) in enumerate(ended)]
        winners = [host for host, _, code in ended if code == 0]
        assert len(winners) == 1, f"round {round_}: {[(h.name, o, c) for h, o, c in ended]}"
        won[winners[0].name] += 1
        winners[0].pando("subvolume", "create", f"{url}:/here")
        assert "here" in winners[0].pando("ls", f"{url}:/")
    print(f"  8 races: {won}")


def listings(alpha, beta):
    """What one host creates, the other one's next listing shows (the rule of LIST after PUT)."""
    alpha.ok("mkdir", f"{NFS}/listed")
    beta.ok("ls", f"{NFS}/listed")
    for number in range(10):
        alpha.ok("touch", f"{NFS}/listed/{number}")
        assert str(number) in beta.ok("ls", f"{NFS}/listed").split(), f"{number} is not listed"


WRITER = """
import os, sys
directory, log = sys.argv[1:]
out = open(log, "w")
number = 0
while True:
    try:
        file = os.open(f"{directory}/f{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(file, b"%d" % number * (30000 if number % 5 == 0 else 10))
        os.fsync(file)
        os.close(file)
    except OSError as error:
        print("ended", error, file=out, flush=True)
        break
    print(number, file=out, flush=True)
    number += 1
"""


def acknowledged(log):
    with open(log) as file:
        lines = file.read().split("\n")
    return [int(line) for line in lines if line.isdigit()], [l for l in lines if l.startswith("ended")]


def take_overs(alpha, beta):
    """A take-over under load: what was fsynced is there, and the replaced host adds nothing."""
    url = volume("taken")
    alpha.ok("mkdir", f"{NFS}/taken")
    alpha.pando("format", url)
    owner, other = alpha, beta
    owner.pando("mount", url, MOUNT)
    for round_ in range(4):
        directory, log = f"{MOUNT}/round{round_}", f"/tmp/log{round_}"
        owner.ok("mkdir", directory)
        other.fails(f"is open on host {owner.name}", PANDO, "mount", url, MOUNT)
        if round_ == 0:
            seen = other.pando("ls", f"{url}:/")
            assert "shows its state of" in seen, seen
        writer = owner.start("python3", "-c", WRITER, directory, log)
        deadline = time.monotonic() + 120
        while not os.path.exists(log) or len(acknowledged(log)[0]) < 10:
            assert time.monotonic() < deadline, "the writer does not get on"
            time.sleep(0.2)
        other.pando("mount", "--take-over", url, MOUNT)
        other.ok("mkdir", f"{MOUNT}/new{round_}")
        out, _ = writer.communicate(timeout=300)
        done, end = acknowledged(log)
        assert end, f"the replaced host's fsync did not fail: {out}"
        listed = other.ok("find", directory, "-name", "f*", "-printf", "%f %s\\n").split("\n")
        lengths = dict(line.split() for line in listed if line)
        for number in done:
            times = 30000 if number % 5 == 0 else 10
            found = lengths.get(f"f{number}")
            assert found == str(len(str(number)) * times), f"round {round_}: f{number}: {found}"
        text = other.ok("cat", f"{directory}/f{done[0]}")
        assert set(text) == set(str(done[0])), "other contents"
        print(f"  take-over {round_}: {owner.name} had {len(done)} acknowledged, all there; {end[0]}")
        owner.kill_daemons()
        owner, other = other, owner
    owner.pando("sync", url)
    return url, owner, other


def a_crash(url, owner, other):
    """After a crash the other host waits for the signs of life to be old, and needs no option."""
    owner.ok("sh", "-c", f"echo kept > {MOUNT}/kept && sync {MOUNT}/kept")
    owner.kill_daemons()
    begun = time.monotonic()
    other.pando("mount", url, MOUNT)
    print(f"  open after a crash of {owner.name}: {time.monotonic() - begun:.0f} s")
    assert other.ok("cat", f"{MOUNT}/kept") == "kept\n"
    other.pando("umount", MOUNT)
    print("  fsck:", other.pando("fsck", url).strip().split("\n")[-1])


def main():
    alpha, beta = Host("alpha"), Host("beta")
    for what, check in (
        ("options that are refused", lambda: refused_options(alpha)),
        ("listings after creations", lambda: listings(alpha, beta)),
        ("races of two hosts to format", lambda: races(alpha, beta)),
        ("take-overs under load, and a crash", lambda: a_crash(*take_overs(alpha, beta))),
    ):
        begun = time.monotonic()
        print(f"== {what}", flush=True)
        check()
        print(f"   passed in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
