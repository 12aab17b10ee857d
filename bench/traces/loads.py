"""The loads that bench/traces/record.sh records: `loads.py LOAD prepare|run DIR`."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading

SEED = 1
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def run(*arguments, **options):
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def as_url(repository):
    """git takes a depth for URLs only."""
    return f"file://{os.path.abspath(repository)}" if os.path.exists(repository) else repository


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


# zlib, from PANDO_ZLIB (a repository or its URL): configure and make; once more after one source
# changed; make clean.
def c_build_prepare(top):
    source = os.environ.get("PANDO_ZLIB", "https://github.com/madler/zlib")
    run("git", "clone", "-q", "--depth", "1", "--branch", "v1.3.1", as_url(source), f"{top}/zlib")
    shutil.rmtree(f"{top}/zlib/.git")


def c_build_run(top):
    run("./configure", cwd=f"{top}/zlib")
    run("make", "-j2", "libz.a", "example", "minigzip", cwd=f"{top}/zlib")
    os.utime(f"{top}/zlib/inflate.c")
    run("make", "-j2", "libz.a", "example", "minigzip", cwd=f"{top}/zlib")
    run("make", "clean", cwd=f"{top}/zlib")


# A crate of this repository with all that it depends on, and once more after one source changed.
CRATE = "pando-device"


def rust_build_prepare(top):
    os.makedirs(f"{top}/w")
    archive = subprocess.Popen(["git", "archive", "HEAD", "Cargo.toml", "Cargo.lock",
                                "crates", "bench", "testing", "xtask"],
                               cwd=ROOT, stdout=subprocess.PIPE)
    run("tar", "-x", "--exclude=*.trace", "--exclude=*.tar.zst", "-C", f"{top}/w", stdin=archive.stdout)
    assert archive.wait() == 0


def rust_build_run(top):
    environment = {**os.environ, "CARGO_TARGET_DIR": f"{top}/w/target", "CARGO_BUILD_JOBS": "2"}
    run("cargo", "build", "--offline", "-p", CRATE, cwd=f"{top}/w", env=environment)
    with open(f"{top}/w/crates/device/src/lib.rs", "a") as file:
        file.write("// changed\n")
    run("cargo", "build", "--offline", "-p", CRATE, cwd=f"{top}/w", env=environment)


# This repository: its last commits cloned, two thirds of the files of the last one and of the one
# before checked out, and packed.
def git_prepare(top):
    pass


def git_run(top):
    run("git", "clone", "-q", "--depth", "30", "--sparse", as_url(ROOT), f"{top}/clone")
    run("git", "-C", f"{top}/clone", "sparse-checkout", "set", "crates")
    run("git", "-C", f"{top}/clone", "checkout", "-q", "HEAD~1")
    run("git", "-C", f"{top}/clone", "gc", "-q", "--prune=now")


# A package of npm with 65 dependencies, installed from a cache that is filled before.
PACKAGE = "express@4.21.2"


def npm_prepare(top):
    cache = f"{tempfile.gettempdir()}/pando-npm-cache"
    with tempfile.TemporaryDirectory() as elsewhere:
        run("npm", "install", "--cache", cache, "--no-audit", "--no-fund", PACKAGE, cwd=elsewhere)
    os.makedirs(f"{top}/app")


def npm_run(top):
    cache = f"{os.environ.get('PANDO_CACHE', '/tmp')}/pando-npm-cache"
    run("npm", "install", "--offline", "--cache", cache, "--no-audit", "--no-fund", PACKAGE,
        cwd=f"{top}/app")


# Mailboxes of five users: a delivery writes to tmp and renames to new; a reader moves messages to
# cur with flags, reads some, and expunges others.
def maildir_prepare(top):
    for user in range(5):
        for box in ("tmp", "new", "cur"):
            os.makedirs(f"{top}/u{user}/{box}")
        for number in range(60):
            write(f"{top}/u{user}/cur/0.{number}.host:2,S", "x" * 2000)


def maildir_run(top):
    def client(user):
        rng, box = random.Random(user), f"{top}/u{user}"
        for step in range(24):
            name = f"{step + 1}.{user}.host"
            with open(f"{box}/tmp/{name}", "w") as file:
                file.write("y" * rng.randrange(500, 9000))
                file.flush()
                os.fsync(file.fileno())
            os.rename(f"{box}/tmp/{name}", f"{box}/new/{name}")
            if step % 3 == 0:
                for new in os.listdir(f"{box}/new"):
                    os.rename(f"{box}/new/{new}", f"{box}/cur/{new}:2,")
                messages = os.listdir(f"{box}/cur")
                for message in rng.sample(messages, min(8, len(messages))):
                    os.stat(f"{box}/cur/{message}")
                    with open(f"{box}/cur/{message}") as file:
                        file.read()
                gone = rng.choice(messages)
                os.unlink(f"{box}/cur/{gone}")
                seen = next((m for m in messages if m.endswith(":2,") and m != gone), None)
                if seen:
                    os.rename(f"{box}/cur/{seen}", f"{box}/cur/{seen}S")

    threads = [threading.Thread(target=client, args=(user,)) for user in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# 600 files in ten classes, listed once, then read in random order by two workers, twice.
def loader_prepare(top):
    rng = random.Random(SEED)
    for number in range(600):
        write(f"{top}/data/c{number % 10}/i{number}.jpg", "z" * rng.randrange(2000, 40000))


def loader_run(top):
    files = []
    for name in sorted(os.listdir(f"{top}/data")):
        files += [f"{top}/data/{name}/{file}" for file in os.listdir(f"{top}/data/{name}")]
    for epoch in range(2):
        order = random.Random(epoch).sample(files, len(files))
        children = []
        for worker in range(2):
            child = os.fork()
            if child == 0:
                for path in order[worker::2]:
                    with open(path, "rb") as file:
                        file.read()
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        write(f"{top}/checkpoints/tmp", "w" * 100_000)
        os.rename(f"{top}/checkpoints/tmp", f"{top}/checkpoints/epoch-{epoch}")


if __name__ == "__main__":
    load, phase, top = sys.argv[1:]
    globals()[f"{load.replace('-', '_')}_{phase}"](top)
