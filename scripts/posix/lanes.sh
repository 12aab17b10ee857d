#!/usr/bin/env bash
# All POSIX suites, on both engines, in two parallel lanes: suites wait for the disk and for clocks
# more than for the processor. A suite's output is printed when it ends, in one piece.
#   scripts/posix/lanes.sh quick     what `make test` runs: each suite on an engine, and what may differ
#                                    between the engines on both (docs/decisions/0345)
#   scripts/posix/lanes.sh whole     what `make soak-posix` runs: longer, more of each, all on both engines
set -euo pipefail
cd "$(dirname "$0")/../.."
case ${1:-} in
  quick)
    whole='' fsx=4 acl=1000 kills=2 load=150 limits=quick outside=quick backup=quick
    # As nobody what own_mount.sh does not run; SQLite's writer killed once and its daemon once.
    programs=(PROGRAMS_OF_OTHERS="archives git tools calls" SQLITE_ROUNDS="2 3" programs.sh)
    programs_of_lsm=(calls totals extents)
    full=(FULL_USERS=nobody full.sh) full_of_lsm=(FULL_USERS=root full.sh)
    # What engines write themselves. Contents, header, index and log are the same files for both.
    damage_of_lsm=(record "own records" "copies of own records" state "copy of the state")
    ;;
  whole)
    whole=yes fsx=300 acl=8000 kills=20 load=4000 limits='' outside='' backup=''
    programs=(programs.sh) programs_of_lsm=(calls coherence totals extents handles)
    full=(full.sh) full_of_lsm=(full.sh) damage_of_lsm=()
    ;;
  *) sed -n '4,6p' "$0" >&2 && exit 2 ;;
esac
fsx=${FSX_SECONDS:-$fsx}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# suite [VARIABLE=VALUE...] SCRIPT [ARGUMENT...]
suite() {
  local settings=() begin=$SECONDS code=0 out=$logs/$BASHPID
  while [[ $1 == *=* ]]; do settings+=("$1") && shift; done
  local name="${settings[*]:+${settings[*]} }$*" script=$1
  shift
  echo "-- $name: begun"
  env "${settings[@]}" bash "scripts/posix/$script" "$@" > "$out" 2>&1 || code=$?
  {
    printf '\n-- %s: %d s\n' "$name" $((SECONDS - begin))
    cat "$out"
  } | cat
  [ "$code" -eq 0 ] || { echo "$name failed (code $code)" >&2 && exit "$code"; }
}

first_lane() {
  suite pjdfstest.sh
  suite fsx.sh "$fsx" "${FSX_SEED:-1}"
  suite "${programs[@]}"
  suite own_mount.sh
  suite wide_inodes.sh
  suite under_load.sh 1 "${LOAD_SEED:-1}" "$load"
  suite beside.sh
  suite acl.sh "$acl" "${ACL_SEED:-1}"
  suite trash.sh
  # shellcheck disable=SC2086 # none by default
  suite limits.sh $limits
  # shellcheck disable=SC2086
  suite backup.sh $backup
}

second_lane() {
  # shellcheck disable=SC2086
  suite outside.sh $outside
  suite quota.sh
  suite damaged.sh
  suite "${full[@]}"
  suite kill.sh "$kills"
  # The other engine: the results of calls, whether files read as they were written, and what may
  # differ between the engines: damage, full disks, kills.
  local lsm=PANDO_ENGINE=lsm
  suite $lsm PJDFSTEST_USERS=root pjdfstest.sh
  suite $lsm fsx.sh $(((fsx + 1) / 2)) "${FSX_SEED:-1}"
  suite $lsm PROGRAMS_USERS=root programs.sh "${programs_of_lsm[@]}"
  suite $lsm under_load.sh 1 "${LOAD_SEED:-1}" "$load"
  suite $lsm damaged.sh "${damage_of_lsm[@]}"
  suite $lsm "${full_of_lsm[@]}"
  suite $lsm kill.sh "$kills"
  [ -n "$whole" ] || return 0
  suite $lsm own_mount.sh
  suite $lsm wide_inodes.sh
  suite $lsm acl.sh $((acl / 2)) "${ACL_SEED:-1}"
  suite $lsm trash.sh
  suite $lsm quota.sh
}

# With job control: each lane is a process group, and SIGINT is not ignored in it.
set -m
first_lane &
first=$!
second_lane &
second=$!
set +m
trap 'kill -- "-$first" "-$second" 2>/dev/null; exit 130' INT TERM
code=0
wait "$first" || code=$?
wait "$second" || code=$?
exit "$code"
