"""The loads that bench/traces/record.sh records: `loads.py LOAD prepare|run DIR`."""

import os
import random
import subprocess
import sys
import threading

SEED = 1


def run(*arguments, **options):
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


# A C project of three libraries, 21 sources, and a program.
def c_build_prepare(top):
    names = [(lib, f"{lib}{number}") for lib in ("core", "net", "ui") for number in range(7)]
    for lib, name in names:
        write(f"{top}/p/include/{lib}/{name}.h", f"int {name}(int x);\n")
        uses = [other for _, other in random.Random(name).sample(names, 6)]
        body = "".join(f'#include "{other[:-1].rstrip("0123456789")}/{other}.h"\n' for other in uses)
        calls = " + ".join(f"{other}(x - 1)" for other in uses)
        write(f"{top}/p/{lib}/{name}.c",
              f'#include <stdio.h>\n#include <string.h>\n#include "{lib}/{name}.h"\n{body}'
              f"int {name}(int x) {{ return x <= 0 ? 0 : {calls}; }}\n")
    write(f"{top}/p/main.c", '#include "core/core0.h"\nint main(void) { return core0(2); }\n')
    write(f"{top}/p/Makefile", """
SOURCES := $(wildcard core/*.c net/*.c ui/*.c)
OBJECTS := $(SOURCES:.c=.o)
CFLAGS := -O1 -Iinclude -MMD -MP
program: main.o libcore.a libnet.a libui.a
\tgcc -o $@ main.o -Wl,--start-group libcore.a libnet.a libui.a -Wl,--end-group
lib%.a: $(OBJECTS)
\tar rcs $@ $(filter $*/%,$(OBJECTS))
-include $(OBJECTS:.o=.d)
""")


def c_build_run(top):
    run("make", "-j2", "program", cwd=f"{top}/p")
    os.utime(f"{top}/p/core/core3.c")
    run("make", "-j2", "program", cwd=f"{top}/p")


# A crate of a library and a program, without dependencies.
def rust_build_prepare(top):
    write(f"{top}/c/Cargo.toml", '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n')
    for number in range(12):
        write(f"{top}/c/src/m{number}.rs", f"pub fn f(x: u64) -> u64 {{ x * {number + 2} + 1 }}\n")
    mods = "".join(f"pub mod m{number};\n" for number in range(12))
    write(f"{top}/c/src/lib.rs", mods)
    write(f"{top}/c/src/main.rs", 'fn main() { println!("{}", small::m3::f(4)); }\n')


def rust_build_run(top):
    environment = {**os.environ, "CARGO_TARGET_DIR": f"{top}/c/target"}
    run("cargo", "build", "--offline", cwd=f"{top}/c", env=environment)
    with open(f"{top}/c/src/m3.rs", "a") as file:
        file.write("pub fn g(x: u64) -> u64 { x }\n")
    run("cargo", "build", "--offline", cwd=f"{top}/c", env=environment)


# A history of 2 commits in 10 files, cloned and packed.
def git_prepare(top):
    source = f"{top}/source"
    os.makedirs(source)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", source]
    run("git", "init", "-q", source)
    rng = random.Random(SEED)
    for commit in range(2):
        for number in range(10) if commit == 0 else rng.sample(range(10), 4):
            write(f"{source}/d{number % 17}/s{number % 5}/f{number}.txt", f"{commit} {number}\n" * 40)
        run(*git, "add", "-A")
        run(*git, "commit", "-qm", str(commit))


def git_run(top):
    run("git", "clone", "-q", "--no-hardlinks", f"{top}/source", f"{top}/clone")
    run("git", "-C", f"{top}/clone", "checkout", "-q", "HEAD~1")
    run("git", "-C", f"{top}/clone", "gc", "-q", "--prune=now")


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
