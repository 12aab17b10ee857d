"""An S3 server whose requests take long: each is answered after a delay, objects are in memory.

    python3 bench/slow_s3.py MILLISECONDS      prints its address, serves until it is ended

It speaks as much of the protocol as PandoFS and JuiceFS need, checks no signatures, and counts
requests of a bucket by kind and bytes (`GET /?counts=BUCKET`, without a delay). `PUT /?delay=MILLISECONDS` changes the
delay, `PUT /?forget` deletes all objects.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

OBJECTS = {}
LOCK = threading.Lock()
DELAY = [0.03]
XML = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
RULES = ("versioning", "lifecycle", "object-lock")
COUNTS = {}
UNDER_WAY = [0, 0]


def unchunked(body):
    """The bytes of a body in the encoding aws-chunked: SIZE[;signature] CRLF BYTES CRLF, ..., 0."""
    parts = []
    while body:
        head, _, rest = body.partition(b"\r\n")
        size = int(head.split(b";")[0], 16)
        if size == 0:
            break
        parts.append(rest[:size])
        body = rest[size + 2 :]
    return b"".join(parts)


class Handler(BaseHTTPRequestHandler):
    """One connection. Objects are immutable where a volume expects that."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        pass

    def count(self, kind, amount=1):
        with LOCK:
            of_bucket = COUNTS.setdefault(self.bucket, {})
            of_bucket[kind] = of_bucket.get(kind, 0) + amount

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
        parts = urlsplit(self.path)
        path, query = unquote(parts.path), parse_qs(parts.query, keep_blank_values=True)
        self.bucket = path.strip("/").split("/")[0]
        if not query.keys() & {"counts", "delay", "forget"}:
            with LOCK:
                UNDER_WAY[0] += 1
                UNDER_WAY[1] = max(UNDER_WAY)
            time.sleep(DELAY[0])
            with LOCK:
                UNDER_WAY[0] -= 1
        return path, query, body

    def do_PUT(self):
        path, query, body = self.begin()
        if "delay" in query:
            DELAY[0] = float(query["delay"][0]) / 1000
            return self.answer(200)
        if "forget" in query:
            with LOCK:
                OBJECTS.clear()
            return self.answer(200)
        self.count("create")
        if path.rstrip("/").count("/") < 2:
            return self.answer(200)
        if self.headers.get("x-amz-content-sha256", "").startswith("STREAMING"):
            body = unchunked(body)
        self.count("bytes_out", len(body))
        with LOCK:
            taken = path in OBJECTS and self.headers.get("if-none-match") == "*"
            if not taken:
                OBJECTS[path] = body
        self.answer(412 if taken else 200, headers=[("etag", '"x"')])

    def do_DELETE(self):
        path, _, _ = self.begin()
        self.count("delete")
        with LOCK:
            OBJECTS.pop(path, None)
        self.answer(204)

    def do_POST(self):
        path, _, body = self.begin()
        self.count("delete")
        bucket = path.rstrip("/")
        with LOCK:
            for part in body.decode().split("<Key>")[1:]:
                OBJECTS.pop(bucket + "/" + part.split("</Key>")[0], None)
        self.answer(200, f"<DeleteResult {XML}/>".encode())

    def do_HEAD(self):
        path, _, _ = self.begin()
        self.count("head")
        found = OBJECTS.get(path)
        if path.rstrip("/").count("/") < 2:
            self.answer(200, headers=[("content-length", "0")])
        elif found is None:
            self.answer(404, headers=[("content-length", "0")])
        else:
            self.answer(200, headers=[("content-length", str(len(found))), ("etag", '"x"')])

    def do_GET(self):
        path, query, _ = self.begin()
        if "counts" in query:
            with LOCK:
                bucket = query["counts"][0]
                sizes = [len(data) for path, data in OBJECTS.items() if path.startswith(f"/{bucket}/")]
                result = {**COUNTS.get(bucket, {}), "most_at_once": UNDER_WAY[1]}
                result |= {"objects": len(sizes), "bytes": sum(sizes)}
                UNDER_WAY[1] = UNDER_WAY[0]
            self.answer(200, json.dumps(result).encode())
        elif any(name in query for name in RULES):
            self.answer(501, b"<Error><Code>NotImplemented</Code></Error>")
        elif "location" in query:
            self.answer(200, f"<LocationConstraint {XML}/>".encode())
        elif path.rstrip("/").count("/") < 2:
            self.count("list")
            self.list(path, query)
        else:
            self.count("read")
            self.read(OBJECTS.get(path))

    def read(self, found):
        wanted = self.headers.get("range")
        if found is None:
            body = b"<Error><Code>NoSuchKey</Code></Error>"
            return self.answer(404, body, [("content-type", "application/xml")])
        if wanted is None:
            self.count("bytes_in", len(found))
            return self.answer(200, found)
        first, last = wanted.removeprefix("bytes=").split("-")
        first, last = int(first), int(last or len(found) - 1)
        if first >= len(found):
            return self.answer(416)
        last = min(last, len(found) - 1)
        self.count("bytes_in", last - first + 1)
        place = f"bytes {first}-{last}/{len(found)}"
        self.answer(206, found[first : last + 1], [("content-range", place)])

    def list(self, path, query):
        def given(name):
            return query.get(name, [""])[0]

        prefix, most = given("prefix"), int(given("max-keys") or 1000)
        after = given("continuation-token") or given("start-after") or given("marker")
        bucket = path.rstrip("/") + "/"
        with LOCK:
            names = sorted(
                (name.removeprefix(bucket), len(data))
                for name, data in OBJECTS.items()
                if name.startswith(bucket + prefix)
            )
        names = [(name, size) for name, size in names if name > after]
        part, more = names[:most], len(names) > most
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{size}</Size><ETag>x</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for name, size in part
        )
        next_one = escape(part[-1][0]) if more and part else ""
        token = f"<NextContinuationToken>{next_one}</NextContinuationToken>" if more else ""
        self.answer(
            200,
            f"<ListBucketResult {XML}><Name>b</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(part)}</KeyCount><MaxKeys>{most}</MaxKeys>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>".encode(),
        )


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


def main():
    DELAY[0] = float(sys.argv[1]) / 1000
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
