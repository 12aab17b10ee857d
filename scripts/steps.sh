# Sourced by long-running scripts: prints what runs, that it still runs, and how long each step
# took. While a command runs that may take ten seconds, a step has begun. What prints every eight
# seconds ends with its script, however that ends; a script with a trap of its own for EXIT calls
# `steps_quiet` or `steps_last` in it.
#
#   step WHAT        begins a step; while it runs, prints its duration every eight seconds
#   step_aloud WHAT  the same for a step that prints lines itself
#   steps_end        ends the last one
#   steps_last WHAT  for a trap: a step in place of the one that ended the script, whose time means nothing
#   steps_table      the cost of each: wall time, and CPU time of the programs that it waited for
steps_rows=()
steps_what=
steps_ticker=
trap 'steps_quiet' EXIT

# steps_cpu VARIABLE: CPU time, in milliseconds, of the programs this shell started and waited for.
# `times` counts for the shell that runs it, so it cannot be used in a pipe or a substitution.
steps_cpu() {
  local file
  file=$(mktemp)
  times > "$file"
  printf -v "$1" %s "$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); sum += part[1] * 60000 + part[2] * 1000 } printf "%d", sum }' "$file")"
  rm -f "$file"
}

step_aloud() {
  steps_end
  steps_what=$* steps_begin=$SECONDS
  steps_cpu steps_cpu_begin
  printf '\n== %s\n' "$*"
}

step() {
  step_aloud "$@"
  (
    for ((waited = 8; ; waited += 8)); do
      sleep 8 > /dev/null 2>&1
      # `$$` is the script, which a signal may have ended without a trap.
      kill -0 $$ 2>/dev/null || exit 0
      echo "   ... $waited s: $steps_what"
    done
  ) &
  steps_ticker=$!
  disown "$steps_ticker"
}

# Ends the line every eight seconds: by a signal that runs no trap, because a child that was just
# forked still has this shell's traps, which clean up.
steps_quiet() {
  [ -z "$steps_ticker" ] || kill -KILL "$steps_ticker" 2>/dev/null || true
  steps_ticker=
}

steps_last() {
  steps_quiet
  steps_what=
  step "$@"
}

steps_end() {
  steps_quiet
  [ -n "$steps_what" ] || return 0
  local cpu
  steps_cpu cpu
  cpu=$(((cpu - steps_cpu_begin) / 1000))
  steps_rows+=("$(printf '%7d s %7d s  %s' $((SECONDS - steps_begin)) "$cpu" "$steps_what")")
  echo "   done in $((SECONDS - steps_begin)) s ($cpu s of CPU time)"
  steps_what=
}

steps_table() {
  steps_end
  printf '\n%9s %9s\n' wall CPU
  printf '%s\n' "${steps_rows[@]}"
  printf '%7d s            all\n' "$SECONDS"
}
