"""The loads that bench/traces/record.sh records: `loads.py LOAD prepare|run DIR`."""

import concurrent.futures
import imaplib
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

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


# Mailboxes of five users, served by dovecot from maildirs: each user is a client that appends messages,
# reads some of them, sets flags, copies some to another mailbox, and expunges others.
USERS = 5
CONF = """protocols = imap
base_dir = {run}
state_dir = {run}/state
log_path = {run}/log
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{top}/%u
first_valid_uid = 1
passdb {{
  driver = static
  args = nopassword=y
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={top}/%u
}}
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
"""


def message(rng, name):
    head = f"From: a@example.org\r\nTo: {name}@example.org\r\nSubject: {rng.random()}\r\n\r\n"
    return (head + "y" * rng.randrange(500, 9000) + "\r\n").encode()


def maildir_prepare(top):
    mail = pwd.getpwnam("mail")
    for user in range(USERS):
        rng = random.Random(user)
        for box in ("tmp", "new", "cur"):
            os.makedirs(f"{top}/u{user}/{box}")
        for number in range(60):
            write(f"{top}/u{user}/cur/{number}.host:2,S", message(rng, "b").decode())
    for where, directories, files in os.walk(top):
        for name in directories + files:
            os.chown(f"{where}/{name}", mail.pw_uid, mail.pw_gid)


def maildir_run(top):
    mail = pwd.getpwnam("mail")
    place = tempfile.mkdtemp(dir=os.environ.get("PANDO_CACHE", "/tmp"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = CONF.format(run=place, top=top, uid=mail.pw_uid, gid=mail.pw_gid, port=port)
    write(f"{place}/conf", conf)
    os.chmod(place, 0o755)
    server = subprocess.Popen(["dovecot", "-F", "-c", f"{place}/conf"])

    def connect(name):
        for attempt in range(200):
            try:
                connection = imaplib.IMAP4("127.0.0.1", port)
                connection.login(name, "any")
                return connection
            except (OSError, imaplib.IMAP4.abort):
                time.sleep(0.1)
        raise RuntimeError("dovecot does not answer")

    def done(answer):
        assert answer[0] == "OK", answer
        return answer[1]

    def client(user):
        rng, name = random.Random(user), f"u{user}"
        imap = connect(name)
        done(imap.create("Archive"))
        for step in range(16):
            done(imap.append("INBOX", None, None, message(rng, name)))
            if step % 3 > 0:
                continue
            done(imap.select("INBOX"))
            for new in done(imap.search(None, "UNSEEN"))[0].split():
                done(imap.fetch(new, "(RFC822)"))
            messages = done(imap.search(None, "ALL"))[0].split()
            for old in rng.sample(messages, 8):
                done(imap.fetch(old, "(FLAGS BODY.PEEK[])"))
            done(imap.copy(rng.choice(messages), "Archive"))
            done(imap.store(rng.choice(messages), "+FLAGS", "\\Flagged"))
            done(imap.store(rng.choice(messages), "+FLAGS", "\\Deleted"))
            done(imap.expunge())
        imap.logout()

    try:
        with concurrent.futures.ThreadPoolExecutor(USERS) as threads:
            for ended in [threads.submit(client, user) for user in range(USERS)]:
                ended.result()
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(place)


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
