#!/usr/bin/env bash
# What the index costs where files are created, by rate and by the processor time of the whole process, with
# a daemon's background work: bases are made behind from 50,000 rows on. FILES are made directory by directory,
# then some more in order and scattered over all; with an index and without, alternately. One JSON object.
#   bench/create_index_rate.sh [FILES] [SCRATCH]      ROUNDS=3
set -eu
cd "$(dirname "$0")/.."
bench=${BENCH:-$PWD/target/release/pando-bench} files=${1:-1000000}
work=$(mktemp -d "${2:-${TMPDIR:-/var/tmp}}/pando-create.XXXXXX")
# On exit, a process that still writes there is ended first.
trap '[ -z "${running:-}" ] || { kill "$running" && wait "$running"; } 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cat >"$work/rounds.py" <<'PY'
import json, os, resource, shutil, signal, statistics, subprocess, sys

signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
bench, files, work, rounds = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
lines, spent = {"with": [], "without": []}, {"with": [], "without": []}


def processor():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


for number in range(rounds):
    # Who is first changes from round to round.
    for how in (("with", "without"), ("without", "with"))[number % 2]:
        volume = os.path.join(work, "volume")
        os.mkdir(volume)
        args = [bench, "create-scattered", "--files", str(files), "--volume", volume, "--json"]
        before = processor()
        done = subprocess.run(args + (["--no-index"] if how == "without" else []), stdout=subprocess.PIPE, check=True)
        spent[how].append(processor() - before)
        lines[how].append(json.loads(done.stdout.splitlines()[-1]))
        shutil.rmtree(volume)
cost = {how: statistics.median(of) for how, of in spent.items()}
result = {
    "bench": "create-index-rate", "files": files, "rounds": rounds,
    "processor_seconds": round(cost["with"], 2), "processor_without_index": round(cost["without"], 2),
}
for what in ("fill", "sequential", "scattered"):
    rate = {how: statistics.median(line[what + "_per_second"] for line in of) for how, of in lines.items()}
    result[what + "_per_second"] = round(rate["with"])
    result[what + "_without_index"] = round(rate["without"])
    result[what + "_slower_percent"] = round(100 * (rate["without"] / rate["with"] - 1), 1)
print(json.dumps(result))
PY
python3 "$work/rounds.py" "$bench" "$files" "$work" "${ROUNDS:-3}" &
running=$!
wait "$running"
running=
