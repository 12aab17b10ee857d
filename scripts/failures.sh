#!/usr/bin/env bash
# Prints what failed in a run of scripts/tests.sh, in few short lines: the run itself is 20,000 lines long, two
# lanes write them at the same time, and some who show it to others show its end only.
#   scripts/failures.sh LOG
set -euo pipefail
log=$1
echo
echo "What failed:"
{
  # The parts and programs, and the suites.
  sed -nE 's/^-- (.*): [0-9]+ s, code [1-9][0-9]*$/part: \1/p; s/^FAILED: (.*)$/program: \1/p; s/^(.* failed \(code [0-9]+\))$/suite: \1/p; /^HANGS: /p' "$log"
  # Single tests, each with the first message of its thread.
  awk '
    { program = ""; line = $0 }
    match(line, /^[a-z\/]+: /) { program = substr(line, 1, RLENGTH - 2); line = substr(line, RLENGTH + 1) }
    # Two formats: the message follows on the next line of the program.
    program != "" && awaited[program] != "" { message[awaited[program]] = message[awaited[program]] ": " line; awaited[program] = "" }
    match(line, /^thread .* panicked at /) {
      split(line, part, "\047")
      name = program ": " part[2]
      if (!(name in message)) { message[name] = substr(line, RLENGTH + 1); awaited[program] = name }
    }
    match(line, /^test .* \.\.\. FAILED$/) { split(line, part, " "); failed[++count] = program ": " part[2] }
    END { for (i = 1; i <= count; i++) print "test: " failed[i] "; " message[failed[i]] }
  ' "$log" | cut -c 1-300
} | awk '!seen[$0]++' | tail -n 20
