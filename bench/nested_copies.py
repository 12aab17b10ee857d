#!/usr/bin/env python3
"""What a copy of a directory costs in which N clones are mounted, and its removal.

    nested_copies.py [--clones 1,200,2000,16000] [--engines btree,lsm] [--steps clone,snapshot,rollback]
                     [--scratch DIR] PANDO                                                    as root
The further step `removal` is `pando rmr`; the program beside it then works in a directory of its own.
Beside each copy a program makes and removes files in the nested clones, through the mount; its longest
wait is reported, and the longest before the copy. After each copy the script waits until the background
has copied what the copy inherits, or has removed what was removed: until there are no more commits, and at least a
second (of the program). A time contains the start of the command, so N = 1 is the baseline. Checkpoints, bytes written and the daemon's
seconds of processor time are those from the command to the end of the background.
Prints one JSON object a line (docs/benchmarks/nested-copies.md).
"""
import argparse
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

# Clones that are made one by one. More are copies of the directory that they are in.
ONE_BY_ONE = 250


class Writer(threading.Thread):
    """Makes and removes a file in each of some directories, in turn."""

    def __init__(self, directories):
        super().__init__(daemon=True)
        self.directories, self.waits, self.ended = directories, [], False

    def run(self):
        at = 0
        while not self.ended:
            path = f"{self.directories[at % len(self.directories)]}/beside"
            began = time.monotonic()
            try:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
                os.unlink(path)
            except OSError:
                pass  # A rollback replaced the directory between the two.
            self.waits.append((began, time.monotonic() - began))
            at += 1

    def longest_ms(self, since, until):
        waits = [wait for began, wait in self.waits if since <= began + wait and began <= until]
        return round(max(waits, default=0) * 1000, 2)


class Volume:
    def __init__(self, top, pando, engine):
        self.volume, self.mount, self.pando = os.path.join(top, "volume"), os.path.join(top, "mnt"), pando
        os.mkdir(self.mount)
        self.run("format", "--engine", engine, self.volume)
        self.run("mount", self.volume, self.mount)
        self.directory = os.path.join(self.mount, "d")

    def run(self, *words):
        return subprocess.run([self.pando, *words], check=True, capture_output=True, text=True).stdout

    def down(self):
        self.run("umount", self.mount)

    def status(self):
        return json.loads(self.run("status", "--json", self.volume))

    def wait_counted(self):
        """Waits until what was detached is gone, and everything was counted that clones inherited: it
        was copied before."""
        while any(self.status()["background"][work] for work in ("counting", "detached")):
            time.sleep(0.25)

    def spent(self):
        """Checkpoints, bytes written, and the daemon's seconds of processor time."""
        status = self.status()
        with open(f"/proc/{status['pid']}/stat") as file:
            user, system = file.read().rsplit(")", 1)[1].split()[11:13]
        cpu = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return status["writing"]["checkpoints"], status["written_bytes"], cpu

    def wait_silent(self, since):
        """Seconds until the last commit and nothing waits, once it was so for a second."""
        last, changed = None, time.monotonic()
        while time.monotonic() - changed < 1:
            status = self.status()
            now = [status["background"][work] for work in ("detached", "dropping", "prunes", "counting")]
            now = (status["writing"]["commits"], now)
            if now != last or any(now[1]):
                last, changed = now, time.monotonic()
            time.sleep(0.1)
        return changed - since

    def fill(self, clones):
        """A directory with so many clones below it; directories in some of them."""
        first = os.path.join(self.directory, "b0")
        os.makedirs(first)
        source = os.path.join(self.mount, "source")
        os.mkdir(source)
        for at in range(10):
            with open(f"{source}/f{at}", "w") as file:
                file.write("contents")
        own = min(clones, ONE_BY_ONE)
        for at in range(own):
            self.run("clone", source, f"{first}/n{at}")
        copies = max(0, round(clones / own) - 1)
        for at in range(copies):
            self.run("clone", first, f"{self.directory}/b{at + 1}")
        self.wait_silent(0)
        some = [f"{self.directory}/b{at}/n{n}" for at in (0, copies) for n in range(0, own, max(1, own // 20))]
        return sorted(set(some))


def measure(volume, directories, do):
    """Milliseconds of a copy, the writer's longest waits, and seconds of background work."""
    writer = Writer(directories)
    writer.start()
    time.sleep(1)
    before = volume.spent()
    began = time.monotonic()
    do()
    ended = time.monotonic()
    volume.wait_counted()
    time.sleep(max(0, ended + 1 - time.monotonic()))
    writer.ended = True
    writer.join()
    background = volume.wait_silent(ended)
    checkpoints, written, cpu = (now - then for now, then in zip(volume.spent(), before))
    return {"checkpoints": checkpoints, "written_bytes": written, "cpu_s": round(cpu, 2),
            "ms": round((ended - began) * 1000, 1),
            "writer_before_ms": writer.longest_ms(0, began),
            "writer_during_ms": writer.longest_ms(began, ended),
            "writer_after_ms": writer.longest_ms(ended, time.monotonic()),
            "writer_operations": len(writer.waits),
            "background_s": round(background, 2)}


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--clones", default="1,200,2000,16000")
    arguments.add_argument("--engines", default="btree,lsm")
    arguments.add_argument("--steps", default="clone,snapshot,rollback")
    arguments.add_argument("--scratch", default="/var/tmp")
    arguments.add_argument("pando")
    options = arguments.parse_args()
    for engine in options.engines.split(","):
        for clones in map(int, options.clones.split(",")):
            top = tempfile.mkdtemp(prefix="pando-nested-", dir=options.scratch)
            volume = Volume(top, os.path.realpath(options.pando), engine)
            try:
                directories = volume.fill(clones)
                before = volume.status()["clones"]
                beside = os.path.join(volume.mount, "beside")
                os.mkdir(beside)
                copies = {"clone": lambda: volume.run("clone", volume.directory, f"{volume.mount}/c"),
                          "snapshot": lambda: volume.run("snapshot", "create", volume.directory, "s"),
                          "rollback": lambda: volume.run("rollback", volume.directory, "s"),
                          "removal": lambda: volume.run("rmr", volume.directory)}
                for name in options.steps.split(","):
                    line = {"engine": engine, "clones": clones, "before": before, "copy": name}
                    line |= measure(volume, [beside] if name == "removal" else directories, copies[name])
                    line |= {"after": volume.status()["clones"], "load": round(os.getloadavg()[0], 1)}
                    before = line["after"]
                    print(json.dumps(line), flush=True)
            finally:
                volume.down()
                shutil.rmtree(top)


if __name__ == "__main__":
    main()
