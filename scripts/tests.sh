#!/usr/bin/env bash
# Runs all Rust tests in two parallel lanes: the tests of the program, which mount volumes and mostly
# wait for daemons, the kernel and clocks, and those of everything else, which compute. Each program
# of tests runs in the directory of its package, as under `cargo test`. A line of output begins with
# the package.
#   scripts/tests.sh [ARGUMENT OF CARGO TEST]...
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
# They wait: more of them than there are processors.
threads=$((2 * $(nproc)))

list=$(mktemp)
trap 'rm -f "$list"' EXIT
# One line a program: the directory of its package, and its path.
$cargo test "$@" --no-run --quiet --message-format=json |
  sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' > "$list"
[ -s "$list" ] || { echo "No test program was built." >&2 && exit 1; }

is_of_program() { [[ $1 == */crates/pando && $2 == */it-* ]]; }

# run DIRECTORY PROGRAM [ARGUMENT...]
run() {
  local directory=$1 program=$2
  shift 2
  local name=${directory#"$PWD/"}
  echo "$name: running ${program#"$PWD/"}"
  (cd "$directory" && exec "$program" "$@") 2>&1 | sed -u "s|^|$name: |"
}

# lane WHICH [ARGUMENT...]: runs those of the program (yes) or all others (no).
lane() {
  local which=$1 code=0 directory program is
  shift
  while read -r -u 3 directory program; do
    is=no
    ! is_of_program "$directory" "$program" || is=yes
    [ "$is" = "$which" ] || continue
    run "$directory" "$program" "$@" || { code=1 && echo "FAILED: ${directory#"$PWD/"}, ${program#"$PWD/"}"; }
  done 3< "$list"
  return "$code"
}

# With job control: each lane is a process group, and SIGINT is not ignored in it.
set -m
lane yes --test-threads="$threads" &
first=$!
lane no &
second=$!
set +m
trap 'kill -- "-$first" "-$second" 2>/dev/null; exit 130' INT TERM
code=0
wait "$first" || code=$?
wait "$second" || code=$?
exit "$code"
