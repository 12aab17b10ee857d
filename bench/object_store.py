#!/usr/bin/env python3
"""A volume in an object store whose requests take long, beside a local volume of the same engine.

    bench/object_store.py PANDO DIRECTORY [--files N] [--delay MS]

An object store of this program answers each request after a delay (30 ms), like one in the same
region; it keeps objects in memory and speaks as much of the S3 protocol as a volume needs. Both
volumes are mounted by the same program, and each step that changes something ends when `pando sync`
has returned, so when it is durable. The table has one line a step: both times, their ratio, and the
requests that the step sent. Caches are warm unless the step says so.
"""

import argparse
import io
import os
import random
import subprocess
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

OBJECTS = {}
LOCK = threading.Lock()
DELAY = 0.03
XML = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


class Handler(BaseHTTPRequestHandler):
    """One connection. Objects are immutable, as volumes expect."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *arguments):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def begin(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length) if length else b""
        time.sleep(DELAY)
        parts = urlsplit(self.path)
        return unquote(parts.path), parse_qs(parts.query, keep_blank_values=True), body

    def do_PUT(self):
        path, _, body = self.begin()
        with LOCK:
            taken = path in OBJECTS and self.headers.get("if-none-match") == "*"
            if not taken:
                OBJECTS[path] = body
        self.answer(412 if taken else 200)

    def do_DELETE(self):
        path, _, _ = self.begin()
        with LOCK:
            OBJECTS.pop(path, None)
        self.answer(204)

    def do_POST(self):
        path, _, body = self.begin()
        bucket = path.rstrip("/")
        with LOCK:
            for part in body.decode().split("<Key>")[1:]:
                OBJECTS.pop(bucket + "/" + part.split("</Key>")[0], None)
        self.answer(200, f"<DeleteResult {XML}/>".encode())

    def do_HEAD(self):
        path, _, _ = self.begin()
        found = OBJECTS.get(path)
        if found is None:
            self.answer(404, headers=[("content-length", "0")])
        else:
            self.answer(200, headers=[("content-length", str(len(found)))])

    def do_GET(self):
        path, query, _ = self.begin()
        if any(name in query for name in ("versioning", "lifecycle", "object-lock")):
            self.answer(501, b"<Error><Code>NotImplemented</Code></Error>")
        elif "list-type" in query:
            self.list(path, query)
        else:
            self.read(OBJECTS.get(path))

    def read(self, found):
        wanted = self.headers.get("range")
        if found is None:
            self.answer(404)
        elif wanted is None:
            self.answer(200, found)
        else:
            first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
            if first >= len(found):
                self.answer(416)
                return
            last = min(last, len(found) - 1)
            place = f"bytes {first}-{last}/{len(found)}"
            self.answer(206, found[first : last + 1], [("content-range", place)])

    def list(self, path, query):
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", [""])[0]
        bucket = path.rstrip("/") + "/"
        with LOCK:
            names = sorted(
                (name.removeprefix(bucket), len(data))
                for name, data in OBJECTS.items()
                if name.startswith(bucket + prefix)
            )
        names = [(name, size) for name, size in names if name > after]
        part, more = names[:1000], len(names) > 1000
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{size}</Size><ETag>x</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for name, size in part
        )
        token = f"<NextContinuationToken>{escape(part[-1][0])}</NextContinuationToken>" if more else ""
        self.answer(
            200,
            f"<ListBucketResult {XML}><Name>b</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(part)}</KeyCount><MaxKeys>1000</MaxKeys>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>".encode(),
        )


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


def archive(path, files):
    """A tree like one of sources: 20 files a directory, most of some KiB."""
    numbers = random.Random(1)
    with tarfile.open(path, "w") as tar:
        for number in range(files):
            size = int(min(numbers.lognormvariate(8.2, 1.2), 1 << 20))
            entry = tarfile.TarInfo(f"tree/d{number // 400}/d{number // 20}/f{number}.c")
            entry.size, entry.mtime = size, 1_700_000_000
            tar.addfile(entry, io.BytesIO(numbers.randbytes(size)))


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def requests(pando, volume):
    import json

    out = subprocess.run([pando, "--json", "status", volume], check=True, capture_output=True)
    counts = json.loads(out.stdout)["store"]
    return counts["requests"] if counts else {}


def steps(pando, volume, mount, tar):
    """Runs all steps; returns name, seconds and requests of each."""
    changes = [
        ("untar", ["tar", "-xf", tar, "-C", mount]),
        ("ls -lR", ["ls", "-lR", mount]),
        ("find (kernel)", ["find", mount, "-size", "+100k"]),
        ("pando find", [pando, "find", f"{mount}/tree", "-size", "+100k"]),
        ("cp -a", ["cp", "-a", f"{mount}/tree", f"{mount}/copy"]),
        ("rm -rf", ["rm", "-rf", f"{mount}/copy"]),
    ]
    found = []
    for name, command in changes:
        before = requests(pando, volume)
        start = time.monotonic()
        run(*command)
        if name in ("untar", "cp -a", "rm -rf"):
            run(pando, "sync", volume)
        took = time.monotonic() - start
        after = requests(pando, volume)
        sent = {kind: after[kind] - before[kind] for kind in after if kind != "retries"}
        found.append((name, took, sent))
    return found


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("pando")
    arguments.add_argument("directory")
    arguments.add_argument("--files", type=int, default=7000)
    arguments.add_argument("--delay", type=float, default=30)
    given = arguments.parse_args()
    global DELAY
    DELAY = given.delay / 1000
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.makedirs(given.directory, exist_ok=True)
    place = os.path.realpath(given.directory)
    os.environ.update(
        AWS_ACCESS_KEY_ID="key",
        AWS_SECRET_ACCESS_KEY="secret",
        AWS_REGION="us-east-1",
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.server_address[1]}",
        PANDO_HOST_DIRECTORY=f"{place}/host",
    )
    tar = f"{place}/tree.tar"
    archive(tar, given.files)
    results = []
    for volume in (f"{place}/local", f"s3://bucket/bench-{os.getpid()}"):
        mount = f"{place}/mnt"
        os.makedirs(mount, exist_ok=True)
        run(given.pando, "format", "--engine", "lsm", "--layout", "column", volume)
        run(given.pando, "mount", volume, mount)
        try:
            results.append(steps(given.pando, volume, mount, tar))
        finally:
            run(given.pando, "umount", mount)
    print(f"{given.files} files, {os.path.getsize(tar) >> 20} MiB, requests take {given.delay:g} ms")
    print("| step | local, s | object store, s | ratio | requests |")
    print("|---|---:|---:|---:|---|")
    for (name, local, _), (_, far, sent) in zip(*results):
        told = ", ".join(f"{count} {kind}" for kind, count in sent.items() if count)
        print(f"| {name} | {local:.2f} | {far:.2f} | {far / local:.2f} | {told or 'none'} |")
    sys.stdout.flush()
    server.shutdown()


if __name__ == "__main__":
    main()
