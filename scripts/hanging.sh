#!/usr/bin/env bash
# Prints what has no result in a run of scripts/tests.sh that is silent, a line each beginning with `HANGS:`, while
# it still runs: tests and suites first, then commands and daemons below them that are older than a minute, with what
# each thread that is not idle waits for in the kernel.
#   scripts/hanging.sh LOG
set -euo pipefail
log=$1
{
  # libtest reports a test after a minute; a report without a result later is one that hangs.
  awk '
    match($0, /^[a-z\/]+: test .* has been running for over/) { running[$1 " " $3] = 1 }
    match($0, /^[a-z\/]+: test .* \.\.\. /) { delete running[$1 " " $3] }
    END { for (name in running) print "test " name }
  ' "$log" | sort | head -n 8
  ps -e -o etimes=,args= | awk '$1 > 60 && /(bash|python3) [^ ]*scripts\/posix\/[a-z_]+\.(sh|py)/ && !/lanes.sh/ { $1 = $1 " s:"; print "suite, " $0 }' |
    cut -c 1-150 | sort -u | head -n 4
  ps -e -o pid=,etimes=,comm=,args= | awk '$2 > 60 && $3 == "pando"' | sort -k2,2nr | head -n 6 |
    while read -r pid age _ args; do
      echo "$age s: ${args:0:180}"
      for thread in "/proc/$pid/task"/*; do
        printf '%s@%s ' "$(cat "$thread/comm")" "$(cat "$thread/wchan")"
      done 2> /dev/null | tr ' ' '\n' | sort | uniq -c | awk '$2 { printf " %s*%s", $1, $2 }' | cut -c 1-600
      echo
    done
} | sed 's/^/HANGS: /'
