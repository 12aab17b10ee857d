# Sourced: runs a command that prints a line for each result, and ends it when it hangs.
#
#   watched LOG COMMAND [ARGUMENT]...   runs it as a process group of its own; its output is printed and copied to
#                                       LOG. If LOG gets nothing for SILENT seconds (900), prints what has no result
#                                       (scripts/hanging.sh) and ends the group. Returns its exit code.
#
# A run that prints no result for so long hangs. There is no total limit: a machine that is busy with other work
# takes longer, and must give a verdict too.
watched() {
  local log=$1 silent=${SILENT:-900} every=2 run rested rc=0
  shift
  [ "$silent" -gt "$every" ] || every=0.2
  # With job control: it can be killed as a whole, and SIGINT is not ignored in it, as it is in other
  # background jobs; tests send it.
  set -m
  "$@" > >(tee "$log") 2>&1 &
  run=$!
  set +m
  # shellcheck disable=SC2064 # now: it is local
  trap "kill -- -$run 2>/dev/null; exit 130" INT TERM
  while kill -0 "$run" 2>/dev/null; do
    sleep "$every"
    rested=$(($(date +%s) - $(stat -c %Y "$log")))
    [ "$rested" -gt "$silent" ] || continue
    echo "The tests are ended: none gave a result for $silent s." >&2
    bash scripts/hanging.sh "$log" | tee -a "$log" || true
    kill -- "-$run" 2>/dev/null || true
    break
  done
  wait "$run" || rc=$?
  trap - INT TERM
  return "$rc"
}
