#!/usr/bin/env bash
# Two NFS clients of one export that hold a volume `file:///...`: what is refused, races for a name,
# claims, a take-over under load, a crash. Each client is a mount of its own without a shared cache,
# with a host name and a host directory of its own, in a kernel of Debian that is a program.
#     scripts/nfs-clients.sh           some minutes; its variables are in scripts/nfs/uml.sh
. "$(dirname "$0")/nfs/uml.sh"
run_guest clients
