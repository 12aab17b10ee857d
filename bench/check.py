#!/usr/bin/env python3
"""Checks the commands of bench/ and docs/benchmarks/ against today's programs: scripts parse, verbs of
`pando` exist, and `--help` of each verb has the options that it is given. Nothing is measured.
`cargo test -p pando-bench documented` does the same for `pando-bench`, by its own parser.

    bench/check.py [PANDO]     the program: target/debug/pando, or target/release/pando
"""

import glob
import os
import re
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
BUILT = [path for path in ("target/debug/pando", "target/release/pando") if os.path.exists(path)]
PANDO = sys.argv[1] if len(sys.argv) > 1 else BUILT[0] if BUILT else "pando"
# How scripts and pages call the program.
CALLS = re.compile(r'(?:"\$pando"|"\$PANDO"|\$pando|\$PANDO|\{p\}|\{pando\}|\[(?:pando|PANDO),|\bpando) ')
HELP = {}


def help_of(words):
    """The help of a verb; None if there is no such verb."""
    words = tuple(words)
    if words not in HELP:
        done = subprocess.run([PANDO, *words, "--help"], capture_output=True, text=True)
        HELP[words] = done.stdout if done.returncode == 0 else None
    return HELP[words]


def verbs_of(text):
    """The verbs that a help lists, two spaces from the margin."""
    return set(re.findall(r"(?m)^ {2,6}([a-z]+)(?: |$)", text or ""))


VERBS = verbs_of(help_of([]))


def commands(path, text):
    """Calls of the program: what follows its name, up to the end of the command."""
    text = text.replace("\\\n", " ")
    if path.endswith(".md"):
        blocks = [line for line in text.split("\n") if line.startswith("    ")]
        text = "\n".join(blocks + re.findall(r"`([^`]+)`", text.replace("\n", " ")))
    for line in text.split("\n"):
        if line.lstrip().startswith("#"):
            continue
        for found in CALLS.finditer(line):
            rest = re.split(r"[|;>&)\]]| #|`", line[found.end():])[0]
            words = [word.strip("\"',") for word in rest.split()]
            yield [word for word in words if word]


def problem(words):
    """What is wrong with a call; None if nothing is, or if its verb is a variable."""
    while words and words[0].startswith("-"):
        words = words[1:]
    if not words or not re.fullmatch(r"[a-z]+", words[0]):
        return None
    verb = [words[0]]
    if verb[0] not in VERBS:
        return f"no verb {verb[0]}"
    text = help_of(verb)
    if len(words) > 1 and "Commands:" in text and words[1] in verbs_of(text.split("Commands:")[1]):
        verb.append(words[1])
        text = help_of(verb)
    for word in words:
        option = word.split("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*", option) and not re.search(re.escape(option) + r"(?![a-z-])", text):
            return f"pando {' '.join(verb)} has no option {option}"
    return None


def main():
    problems, count = [], 0
    scripts = sorted(glob.glob("bench/*.sh") + glob.glob("bench/*.py") + glob.glob("bench/traces/*.sh"))
    for path in scripts + sorted(glob.glob("docs/benchmarks/*.md")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if path.endswith(".sh") and subprocess.run(["bash", "-n", path], check=False).returncode:
            problems.append(f"{path}: is no shell script")
        if path.endswith(".py"):
            try:
                compile(text, path, "exec")
            except SyntaxError as error:
                problems.append(f"{path}: {error}")
        if path == "bench/check.py":
            continue
        for words in commands(path, text):
            count += 1
            wrong = problem(words)
            if wrong:
                problems.append(f"{path}: {wrong}: pando {' '.join(words)}")
    if len(VERBS) < 20 or count < 60:
        problems.append(f"{PANDO}: {len(VERBS)} verbs, {count} commands: too few were read")
    print("\n".join(problems) or f"{count} commands of {len(scripts)} scripts and the pages are understood")
    return 1 if problems else 0


sys.exit(main())
