#!/usr/bin/env bash
# Simulates servers and clients for HOURS, beginning with SEED (default: of the time). Ends at the
# first seed that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
end=$(($(date +%s) + ${HOURS:-1} * 3600))
seed=${SEED:-$(($(date +%s) * 1000))}
$cargo test --workspace --features pando-scheduled/sim --test simulated --no-run
while [ "$(date +%s)" -lt "$end" ]; do
  PANDO_SEED=$seed PANDO_SEEDS=1000 $cargo test --quiet --workspace --features pando-scheduled/sim \
    --test simulated -- --nocapture histories
  seed=$((seed + 1000))
done
