# PandoFS. `make help` lists what there is to do.

DIR ?= /usr/share
CARGO ?= cargo
ROUNDS ?= 200
HOURS ?= 1
# Scripts look for programs in target/, wherever else this user has things built.
unexport CARGO_TARGET_DIR CARGO_BUILD_TARGET_DIR

.PHONY: help setup suites build install uninstall deb demo cluster-demo test bench counts soak-kill soak-mounts soak-failover soak-crash soak-damage soak-fsx soak-fuzz soak-orders soak-posix soak-sim soak-programs soak-nfs suites-outside limits soak

help: ## Show this list
	@echo "PandoFS: a file-system namespace with O(1) snapshots and clones of any directory."
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

setup: ## Install missing system packages (apt, as root or by sudo), or name them
	@bash scripts/setup.sh

build: setup ## Build target/release/pando
	$(CARGO) build --release --package pando

install: ## Install pando, mount.pando, man pages, completions, systemd units below PREFIX (/usr/local), in DESTDIR
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" bash scripts/install.sh install

uninstall: ## Remove what `make install` installed
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" bash scripts/install.sh uninstall

deb: build ## Pack the same as target/pando_VERSION_ARCH.deb
	@bash scripts/install.sh deb

demo: setup ## Import DIR (default /usr/share) into a volume; snapshot, clone, roll back, kill and recover it
	@CARGO="$(CARGO)" KEEP="$(KEEP)" bash scripts/demo.sh "$(DIR)"

cluster-demo: build ## Two servers that take over from each other: etcd, an S3 server, kills and pauses
	@bash scripts/setup.sh test
	@bash scripts/s3-server.sh path >/dev/null 2>&1 || bash scripts/s3-server.sh install || true
	@KEEP="$(KEEP)" bash scripts/cluster-demo.sh $(if $(DIR),"$(DIR)",)

suites: ## Build the POSIX suites (pjdfstest, fsx) into target/tools
	@bash scripts/setup.sh suites

test: ## All that CI runs: format, lints, docs, tests, real mounts, POSIX suites (12 minutes on two idle cores)
	@bash scripts/setup.sh test
	@CARGO="$(CARGO)" bash scripts/test.sh

bench: build ## In-process and mount benchmarks beside their yardsticks, one JSON object a line
	$(CARGO) build --release --package pando-bench
	@bash bench/run.sh

counts: ## Instructions of thirteen operations on both engines beside a table, under valgrind (two minutes)
	@bash scripts/setup.sh counts
	@CARGO="$(CARGO)" bash bench/counts.sh

soak-kill: setup ## Kill a mount under load ROUNDS times (default 200); searches of a mount beside GNU find; 1,000 idle sessions
	PANDO_SLOW=1 PANDO_KILL_ROUNDS=$(ROUNDS) $(CARGO) test --release --package pando --test it -- --nocapture kill find_over_base idle_sessions
	PANDO_SLOW=1 $(CARGO) test --release --package pando --test it -- --nocapture far_memory

soak-mounts: setup ## The tests of the program whole: each on both engines, full disks, hostile trees (without failover)
	@bash scripts/setup.sh test
	PANDO_SLOW=1 $(CARGO) test --release --package pando --test it -- --nocapture --skip failover --skip far_memory

soak-failover: setup ## Kill the server of a volume under load ROUNDS times (default 200), and verify
	@bash scripts/setup.sh test
	PANDO_SLOW=1 PANDO_KILLS=$(ROUNDS) $(CARGO) test --release --package pando --test it -- --nocapture a_killed_server

soak-crash: setup ## Power cuts, faults, flipped bits, random calls, models of protocols, with whole bounds: hours
	PANDO_SLOW=1 $(CARGO) test --release --workspace --exclude pando -- --nocapture --skip check::campaign

soak-damage: setup ## Every place of every file of a volume damaged in every way, checked and repaired: hours
	PANDO_SLOW=1 $(CARGO) test --release --package pando-fs --test it -- --nocapture check::campaign

soak-fsx: suites ## fsx with mmap, punches and copies beside snapshots, for HOURS (default 1)
	@CARGO="$(CARGO)" bash scripts/posix/fsx.sh $$(($(HOURS) * 3600))

soak-fuzz: ## Damaged bytes and random calls for HOURS of CPU time (default 1), two thirds of it decoders
	@CARGO="$(CARGO)" bash scripts/fuzz.sh $$(($(HOURS) * 1800)) $(SEED)

soak-orders: ## Threads of the log and both engines in the orders of 100,000 seeds; 1,000 seeds and all mutations of the simulator (an hour)
	PANDO_SLOW=1 $(CARGO) test --package pando-scheduled --features sim -- --nocapture engines log
	PANDO_SLOW=1 $(CARGO) test --package pando-scheduled --features sim --test simulated -- --nocapture

soak-sim: ## Servers, clients and an object store in simulated worlds, for HOURS (default 1), from SEED
	@HOURS=$(HOURS) SEED="$(SEED)" CARGO="$(CARGO)" bash scripts/simulate.sh

soak-programs: setup ## Kill a mount under SQLite and git ROUNDS times (default 200), asking both each time
	@CARGO="$(CARGO)" bash scripts/posix/kill.sh $(ROUNDS)

soak-nfs: build ## NFS in a kernel of its own: two clients that hold a volume; a mount exported by Ganesha and by Linux's server
	@PANDO=$(CURDIR)/target/release/pando bash scripts/nfs-clients.sh
	@PANDO=$(CURDIR)/target/release/pando bash scripts/nfs-export.sh

suites-outside: ## stress-ng, CPython's and Go's tests of files, fio, dbench, bonnie++ beside ext4; restic, borg (ten minutes)
	@bash scripts/setup.sh outside
	$(CARGO) build --release --package pando
	@PANDO=$(CURDIR)/target/release/pando bash scripts/posix/outside.sh
	@PANDO=$(CURDIR)/target/release/pando bash scripts/posix/backup.sh

limits: setup ## Limits at their edge: 10 million entries in one directory, 1,048,576 links (half an hour)
	$(CARGO) build --release --package pando
	@PANDO=target/release/pando bash scripts/posix/limits.sh full

soak-posix: suites ## The POSIX suites of both engines at their full length (half an hour)
	$(CARGO) build --workspace
	@bash scripts/posix/lanes.sh whole

# What `make test` runs of each is shorter. By decision it runs nothing of soak-nfs, which boots kernels (docs/decisions/0299),
# of suites-outside, or of the whole edges of limits; scripts/posix/limits.sh runs the quick ones there.
# Not what compares with other file systems and programs (suites-outside) and not the edges of limits
# (limits): each ends within half an hour, and finds nothing more by running longer.
soak: soak-crash soak-damage soak-kill soak-mounts soak-failover soak-fuzz soak-orders soak-sim soak-fsx soak-posix soak-programs soak-nfs ## Every soak-* target (a day); suites-outside and limits run by themselves
