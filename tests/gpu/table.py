#!/usr/bin/env python3
"""results.json of tests/gpu/run as Markdown, for RESULTS.md.
usage: tests/gpu/table.py results.json"""

import json
import sys


def cell(value):
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value).replace("|", "\\|")


def table(rows, columns):
    print("| " + " | ".join(columns) + " |\n|---" + "|---:" * (len(columns) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(cell(row.get(column, "")) for column in columns) + " |")
    print()


def main():
    with open(sys.argv[1]) as file:
        results = json.load(file)
    print(f"## {results['date'][:10]}, {results['device']}\n")
    table([{"part": p["name"], "verdict": p["verdict"], "s": p["ms"] / 1000, "why": p["reason"]} for p in results["parts"]],
          ["part", "verdict", "s", "why"])
    measured = [m for part in results["parts"] for m in part["measured"] if "us" in m]
    for part in dict.fromkeys(m["part"] for m in measured):
        rows = [m for m in measured if m["part"] == part]
        others = [key for key in dict.fromkeys(key for row in rows for key in row)
                  if key in ("tokens/s", "TB/s", "TFLOP/s")]
        table([dict(row, **{part: row["name"], "floor": row["floor_us"], "floor / us": row["share"]}) for row in rows],
              [part, "us", "floor", "floor / us", *others])


main()
