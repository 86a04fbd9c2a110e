#!/usr/bin/env python3
"""A measuring program, tiny, on the emulated device: it ends well, and each line of its JSON is what tests/gpu/run and
whoever reads the results may count on.
usage: emulated_test.py PROGRAM NAME... [--said TEXT...]
(each NAME is a part or a model that must have been measured; each TEXT, but for those that begin with "no ", is in a note or
in what a measurement is called)"""

import json
import os
import subprocess
import sys
import tempfile


def main():
    program, *names = sys.argv[1:]
    said = []
    if "--said" in names:
        at = names.index("--said")
        names, said = names[:at], names[at + 1:]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.jsonl")
        done = subprocess.run([program, "--tiny", "--json", path], capture_output=True, text=True)
        print(done.stdout, done.stderr)
        assert done.returncode == 0, done.returncode
        with open(path) as file:
            lines = [json.loads(line) for line in file]
    assert lines[0]["part"] == "device" and "emulated" in lines[0]["note"], lines[0]
    measured = [line for line in lines if "note" not in line]
    for line in measured:
        assert line["us"] > 0 and line["floor_us"] > 0, line
        assert abs(line["share"] - line["floor_us"] / line["us"]) <= 1e-4 * line["share"], line
        assert isinstance(line["part"], str) and isinstance(line["name"], str), line
    texts = [f"{line['part']} {line['name']}" for line in measured]
    assert len(set(texts)) == len(texts), "two measurements have the same name"
    for name in names:
        assert any(name in text for text in texts), f"nothing was measured of {name}"
        # And alone.
        alone = subprocess.run([program, "--tiny", name], capture_output=True, text=True)
        assert alone.returncode == 0 and name in alone.stdout, (name, alone)
    texts += [line["note"] for line in lines if "note" in line]
    for text in said:
        wanted = not text.startswith("no ")
        assert any(text.removeprefix("no ") in t for t in texts) == wanted, (text, texts)
    wrong = subprocess.run([program, "--tinny"], capture_output=True, text=True)
    assert wrong.returncode == 2 and names[0] in wrong.stderr, wrong


main()
