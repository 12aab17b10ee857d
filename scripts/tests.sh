#!/usr/bin/env bash
# Runs all tests in two parallel lanes. The first one mostly waits for daemons, the kernel and clocks:
# the POSIX suites, then the Rust tests of the program, which mount volumes. The suites come first, because
# they leave a processor idle half of the time, which the second lane then uses. That one computes:
# a queue of the Rust tests of everything else, fuzzing and instruction counts, of which one more runs
# at a time than there are processors, because some wait. Each program of Rust
# tests runs in the directory of its package, as under `cargo test`; their lines of output begin with
# the package.
#   scripts/tests.sh SUITES [ARGUMENT OF CARGO TEST]...     the suites' output is copied to SUITES
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
suites=$1
shift
export cargo suites
# They wait: more of them than there are processors.
threads=$((3 * $(nproc)))
# Packages whose tests take longest, in this order; the instruction counts and fuzzing
# come next, then those of others by their size.
# scripts/slow-tests.sh lists the dearest tests.
longest="crates/fs testing/scheduled crates/lsm crates/btree testing/models crates/objects bench/workloads crates/remote crates/data xtask crates/search crates/transfer crates/store"

list=$(mktemp)
memory=
trap 'rm -f "$list" "$list.waiting"; [ -z "$memory" ] || { umount --lazy "$memory" && rmdir "$memory"; }' EXIT
# One line a program: the directory of its package, and its path.
$cargo test "$@" --no-run --quiet --message-format=json |
  sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' > "$list"
[ -s "$list" ] || { echo "No test program was built." >&2 && exit 1; }
# What tests build is no matter of scripts/lints.sh.
unset RUSTC_WORKSPACE_WRAPPER
# No huge pages: the first allocation of each of ten thousand commands cleared two mebibytes.
export MIMALLOC_ALLOW_THP=0

is_of_program() { [[ $1 == */crates/pando && $2 == */it-* ]]; }

# run DIRECTORY PROGRAM [ARGUMENT...]
# Ends with the program, not with the last process that has its output: one that a test left would hold the
# whole run, after all results. Its lines are awaited for ten seconds, and what then has it is named.
run() {
  local directory=$1 program=$2 code=0 lines printer holder
  shift 2
  local name=${directory#"$PWD/"}
  echo "$name: running ${program#"$PWD/"}"
  lines=$(mktemp -u)
  mkfifo "$lines"
  sed -u "s|^|$name: |" < "$lines" &
  printer=$!
  (cd "$directory" && exec "$program" "$@") > "$lines" 2>&1 || code=1
  for _ in $(seq 100); do
    kill -0 "$printer" 2> /dev/null || break
    sleep 0.1
  done
  for holder in $(find /proc/[0-9]*/fd -lname "$lines*" 2> /dev/null | cut -d/ -f3 | sort -u); do
    [ "$holder" = "$printer" ] || echo "LEFT RUNNING by $name: $(tr '\0' ' ' < "/proc/$holder/cmdline" 2> /dev/null | cut -c 1-200)"
  done
  kill "$printer" 2> /dev/null || true
  wait "$printer" 2> /dev/null || true
  rm -f "$lines"
  [ "$code" -eq 0 ] || echo "FAILED: $name, ${program#"$PWD/"}"
  return "$code"
}

# The tests of the program make and remove a million files, which takes the kernel ten times as long on a
# disk as in memory (docs/decisions/0306). The suites before them use a disk, and so do tests of crates below.
in_memory() {
  local available limit kept
  available=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
  # A container may have less than its host.
  for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
    limit=$(grep -xE '[0-9]{1,15}' "$limit" 2> /dev/null || true)
    [ -z "$limit" ] || [ "$((limit >> 10))" -ge "${available:-0}" ] || available=$((limit >> 10))
  done
  if [ -n "${TMPDIR:-}" ] || [ "${available:-0}" -lt $((8 << 20)) ]; then
    echo "the program's tests keep their files in ${TMPDIR:-/tmp}"
    return
  fi
  # What a run left that was killed.
  for kept in $(awk '$1 ~ /^pando-tests-[0-9]+$/ { print $1 ":" $2 }' /proc/self/mounts); do
    [ -e "/proc/$(sed 's/^pando-tests-\([0-9]*\):.*/\1/' <<< "$kept")" ] || umount --lazy "${kept#*:}" || true
  done
  # A short path: names of sockets have 107 bytes.
  memory=$(mktemp -d /tmp/pt.XXX)
  if ! mount -t tmpfs -o "mode=1777,size=$((available / 2))k" "pando-tests-$$" "$memory" 2> /dev/null; then
    rmdir "$memory"
    memory=
  fi
  echo "the program's tests keep their files ${memory:+in memory, at }${memory:-in /tmp}"
}

# Tests of the program that wait for clocks, up to two minutes, and compute nothing. In the order of names
# they would begin near the end, and the run would wait for them.
waiting=(retention::the_daemon_takes_snapshots sessions::an_idle)

of_program() {
  local directory program waits code=0 skipped=() test
  [ -z "$memory" ] || export TMPDIR=$memory
  for test in "${waiting[@]}"; do skipped+=(--skip "$test"); done
  while read -r -u 3 directory program; do
    is_of_program "$directory" "$program" || continue
    # Their output is printed when all have ended, in one piece.
    run "$directory" "$program" --test-threads="$threads" "${waiting[@]}" > "$list.waiting" &
    waits=$!
    run "$directory" "$program" --test-threads="$threads" "${skipped[@]}" || code=1
    wait "$waits" || code=1
    cat "$list.waiting"
  done 3< "$list"
  return "$code"
}

# Every decoder, random calls, damaged volumes: seconds of CPU time, hours in `make soak-fuzz`. The program is
# one that was built for the tests.
fuzz() { PROGRAM=target/debug/pando-fuzz bash scripts/fuzz.sh 4 "${FUZZ_SEED:-1}"; }

# What a part reports as not tested is printed again at the end.
posix() { bash scripts/posix/lanes.sh quick 2>&1 | tee -a "$suites"; }

# Of the build of the tests, beside bench/counts_test.txt.
counts() {
  unset MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ MIMALLOC_ALLOW_THP
  bash bench/counts.sh test 2>&1 | tee -a "$suites"
}

# part WHAT COMMAND...: reports how long it took.
part() {
  local what=$1 began=$SECONDS code
  shift
  # Not `|| code=$?`: then `set -e` would hold nowhere in the command. Not in the background: SIGINT
  # would be ignored there.
  set +e
  (set -e && "$@")
  code=$?
  set -e
  echo "-- $what: $((SECONDS - began)) s, code $code"
  return "$code"
}

# Tests run also after suites that failed: one run names all that is wrong.
first_lane() {
  local code=0
  set +e
  (part "POSIX suites" posix)
  code=$?
  (part "tests of the program" of_program)
  [ $? -eq 0 ] || code=1
  set -e
  return "$code"
}

# What waits goes first when it is ready. But threads that hand each other their turn stay in front:
# behind others, each of the simulator's millions of turns would wait for a processor.
behind() {
  renice -n 10 "$BASHPID" > /dev/null
  "$@"
}

# One line a piece of work, the longest first: what is short fills the end, so that no processor is idle
# beside the last long one.
work() {
  local directory program rank package behind
  {
    while read -r directory program; do
      is_of_program "$directory" "$program" && continue
      rank=99 behind=
      for package in $longest; do
        rank=$((rank - 1))
        [ "$directory" != "$PWD/$package" ] || break
        [ "$package" != "${longest##* }" ] || rank=0
      done
      [ "$directory" = "$PWD/testing/scheduled" ] || behind=behind
      echo "$rank $(stat -c %s "$program") ${behind:-} run $directory $program"
    done < "$list"
    echo 1 1 behind timed_counts
    echo 1 0 behind timed_fuzz
  } | sort -k1,1nr -k2,2nr | cut -d ' ' -f 3-
}
timed_fuzz() { part "fuzzing" fuzz; }
timed_counts() { part "instruction counts" counts; }

of_all_else() {
  export -f run part behind fuzz counts timed_fuzz timed_counts
  work | xargs -L 1 -P "$(($(nproc) + 1))" bash -c 'set -euo pipefail && "$@"' work
}

second_lane() {
  # Memory that is freed stays with the process. Without this, each volume that a test opens with an
  # ordinary log maps and unmaps megabytes for it: half of some tests' time was page faults.
  export MALLOC_MMAP_THRESHOLD_=1000000000 MALLOC_TRIM_THRESHOLD_=500000000
  part "tests of all else" of_all_else
}

# With job control: each lane is a process group, and SIGINT is not ignored in it.
set -m
in_memory
first_lane &
first=$!
second_lane &
second=$!
set +m
trap 'kill -- "-$first" "-$second" 2>/dev/null; wait; exit 130' INT TERM
code=0
wait "$first" || code=$?
wait "$second" || code=$?
exit "$code"
