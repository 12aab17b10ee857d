#!/usr/bin/env python3
"""Draws what `bench/search.sh` printed as SVG pictures: the distributions of query times, one curve a
query set, one picture a mode and budget (the paper's Fig. 7), and of the part of the clusters that
queries read (Fig. 8).

    bench/search_cdf.py LINES.json OUT_PREFIX
"""
import json
import math
import sys

COLOURS = {"1": "#1b6ca8", "2": "#2a9d5c", "3": "#c8553d", "name": "#7b4fa3", "substring": "#8a6d1d"}
LABELS = {"1": "set 1: name and owner", "2": "set 2: the same below a directory",
          "3": "set 3: owner, time, size", "name": "exact name", "substring": "letters of a name"}
TIMES = {0: "1 us", 1: "10 us", 2: "100 us", 3: "1 ms", 4: "10 ms", 5: "100 ms", 6: "1 s", 7: "10 s"}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 60, 40, 50, 50


def rise(share):
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def picture(title, curves, place, ticks):
    """Curves of 101 values each; `place` maps a value to a place between 0 and 1."""
    across = lambda value: LEFT + place(value) * (WIDTH - LEFT - RIGHT)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14">{title}</text>']
    for value, label in ticks:
        x = across(value)
        out.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>'
                   f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    for tenth in range(0, 11, 2):
        y = rise(tenth / 10)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tenth * 10} %</text>')
    for number, (name, curve) in enumerate(curves):
        points = [f"{across(value):.1f} {rise(at / (len(curve) - 1)):.1f}"
                  for at, value in enumerate(curve)]
        colour = COLOURS.get(name, "#444")
        out.append(f'<path d="M{" L".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{WIDTH - RIGHT - 6}" y="{HEIGHT - BOTTOM - 10 - 16 * number}" '
                   f'text-anchor="end" fill="{colour}">{LABELS.get(name, name)}</text>')
    return "\n".join(out + ["</svg>", ""])


def times(title, curves):
    every = [max(time, 0.1) for _, curve in curves for time in curve]
    low = math.floor(math.log10(min(every)))
    high = max(math.ceil(math.log10(max(every))), low + 1)
    place = lambda time: (math.log10(max(time, 0.1)) - low) / (high - low)
    ticks = [(10 ** decade, TIMES.get(decade, f"1e{decade} us")) for decade in range(low, high + 1)]
    return picture(title, curves, place, ticks)


def fractions(title, curves):
    ticks = [(tenth / 10, f"{tenth * 10} %") for tenth in range(0, 11, 2)]
    return picture(title, curves, lambda fraction: fraction, ticks)


def main():
    lines, prefix = sys.argv[1:3]
    groups = {}
    with open(lines, encoding="utf-8") as file:
        for line in file:
            found = json.loads(line) if line.startswith("{") else {}
            if found.get("process_limit"):
                continue
            if found.get("bench") == "search" and all(found.get("cdf_us") or [None]):
                key = (found["files"], found["profile"], found["mode"],
                       found["index_budget_bytes"] >> 20)
                groups.setdefault(key, []).append(found)
    # Which clusters are read depends on neither budget nor mode.
    read = {}
    for (files, profile, mode, budget), found in groups.items():
        title = f"{files:,} files, {profile}-like, {mode}, {budget:,} MiB for the index: time of a query"
        drawn = {f"-{mode}-{budget}m": times(title, [(one["set"], one["cdf_us"]) for one in found])}
        parts = [(one["set"], one["clusters_cdf"]) for one in found if "clusters_cdf" in one]
        if parts and (files, profile) not in read:
            read[files, profile] = True
            title = f"{files:,} files, {profile}-like: part of the clusters that a query reads"
            drawn["-clusters"] = fractions(title, parts)
        for name, text in drawn.items():
            path = f"{prefix}-{files // 1000}k{name}.svg"
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            print(path)


if __name__ == "__main__":
    main()
