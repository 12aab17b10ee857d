#!/bin/sh
# What recording a trace costs: the same work in a mount with and without --trace, in pairs, as ratios of
# the daemon's processor time and of the wall time. One JSON line a pair, and one for all.
#
#   bench/trace_cost.sh [PAIRS] [FILES] [PANDO] [ENGINE]
#       PAIRS: 20; FILES: 2000; PANDO: target/release/pando; ENGINE: btree
#
# The work: one process creates FILES, writes each, states it twice, reads it, lists the directory, and
# unlinks half of them, in a mount whose kernel asks for everything (all timeouts 0). Each run has a new
# volume, and of the two runs of a pair another one is the first each time. `processor` is the time of the
# daemon, with the thread that compresses and writes the trace, in clock ticks of the kernel (10 ms): take
# FILES so that a run has 100 of them or more. The last line has the ratios of the sums, and the least,
# median and greatest ratio of a pair; the bar is 1.05 for the processor time. Needs root, or fusermount3.
set -eu

pando=$(realpath "${3:-target/release/pando}")
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-trace-cost.XXXXXX")
end() {
    "$pando" umount "$work/mnt" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
mkdir "$work/mnt"

python3 - "$work" "$pando" "${1:-20}" "${2:-2000}" "${4:-btree}" <<'END'
import json, os, shutil, statistics, subprocess, sys, time
work, pando, pairs, files, engine = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
mount, volume, trace = f"{work}/mnt", f"{work}/vol", f"{work}/trace"
TICK = os.sysconf("SC_CLK_TCK")


def run(*words):
    return subprocess.run([pando, "-q", *words], check=True, capture_output=True).stdout


def daemon_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def work_of_a_program():
    top = f"{mount}/d"
    os.mkdir(top)
    names = [f"{top}/file-{number}" for number in range(files)]
    for name in names:
        with open(name, "wb") as file:
            file.write(b"contents")
    for name in names + names:
        os.stat(name)
    for name in names:
        with open(name, "rb") as file:
            file.read()
    assert len(os.listdir(top)) == files
    for name in names[::2]:
        os.unlink(name)


def once(traced):
    """Seconds of the daemon's processor, and of the wall, of the work; and what the trace has."""
    run("format", "--engine", engine, volume)
    options = ["-o", "attr-timeout=0,entry-timeout=0,negative-timeout=0"]
    run("mount", *options, *(["--trace", trace] if traced else []), volume, mount)
    pid = json.loads(run("status", "--json", mount))["pid"]
    before, begun = daemon_seconds(pid), time.monotonic()
    work_of_a_program()
    seconds = time.monotonic() - begun
    # What the trace still has in memory is written within a second.
    time.sleep(1.5)
    processor = daemon_seconds(pid) - before
    run("umount", mount)
    found = json.loads(run("trace", "info", "--json", trace)) if traced else {}
    for path in (volume, trace):
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.path.exists(path) and os.unlink(path)
    return processor, seconds, found


ratios, sums = [], [[0, 0], [0, 0]]
for pair in range(pairs):
    runs = {}
    for traced in (False, True) if pair % 2 == 0 else (True, False):
        runs[traced] = once(traced)
    plain, traced = runs[False], runs[True]
    ratios.append([traced[kind] / max(plain[kind], 1 / TICK) for kind in (0, 1)])
    for kind in (0, 1):
        sums[kind][0] += plain[kind]
        sums[kind][1] += traced[kind]
    print(json.dumps({"bench": "trace-cost", "engine": engine, "files": files, "pair": pair,
                      "events": traced[2]["events"], "dropped": traced[2]["dropped"],
                      "trace_bytes": traced[2]["bytes"],
                      "processor": round(plain[0], 2), "processor_traced": round(traced[0], 2),
                      "seconds": round(plain[1], 3), "seconds_traced": round(traced[1], 3)}), flush=True)
line = {"bench": "trace-cost", "engine": engine, "files": files, "pairs": pairs, "bar": 1.05}
for kind, name in enumerate(("processor", "wall")):
    of_pairs = sorted(ratio[kind] for ratio in ratios)
    line[f"{name}_ratio"] = round(sums[kind][1] / max(sums[kind][0], 1 / TICK), 3)
    line[f"{name}_ratio_of_pairs"] = {"least": round(of_pairs[0], 3), "median": round(statistics.median(of_pairs), 3),
                                      "most": round(of_pairs[-1], 3)}
line["met"] = line["processor_ratio"] <= 1.05
print(json.dumps(line), flush=True)
END
