#!/usr/bin/env bash
# Fuzzes on all processors: twice as many CPU seconds, two thirds for decoders, the rest for calls.
#   scripts/fuzz.sh CPU_SECONDS [SEED]     a seed from the clock; it is printed
# Up to a minute it uses the debug build that the tests made; beyond, an optimised one with every
# assertion, or PROGRAM, which is built already. What is found is written to target/fuzz-findings
# (FINDINGS=DIR), with how to replay.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
seconds=${1:?CPU seconds for each part}
seed=${2:-$(date +%s)}
findings=${FINDINGS:-target/fuzz-findings}
if [ -n "${PROGRAM:-}" ]; then
  fuzz=$PROGRAM
elif [ "$seconds" -le 60 ]; then
  $cargo build --package pando-fuzz --quiet
  fuzz=target/debug/pando-fuzz
else
  $cargo build --package pando-fuzz --profile fuzz --quiet
  fuzz=target/fuzz/pando-fuzz
fi
code=0
for part in decoders operations; do
  case $part in decoders) share=4 ;; *) share=2 ;; esac
  "$fuzz" run --part "$part" --cpu-seconds "$((seconds * share / 3))" --seed "$seed" --findings "$findings" || code=$?
done
if [ "$code" -ne 0 ]; then
  cat "$findings"/*.txt >&2 2>/dev/null || true
  echo "fuzzing failed; again with: scripts/fuzz.sh $seconds $seed" >&2
fi
exit "$code"
