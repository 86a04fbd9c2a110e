#!/usr/bin/env python3
"""tests/gpu/run with programs that pass, fail, crash, hang, find no GPU and break off while they report: it names each,
keeps the others' results, and its exit status says how it went."""

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

PROGRAMS = {
    "good": 'echo "shard $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS in $PWD"',
    "bad": "echo '[ RUN      ] A.B'; echo '[  FAILED  ] A.B (3 ms)'; echo '[  FAILED  ] C.D/0, where GetParam() = 1 (0 ms)'; exit 1",
    "crash": "echo '[ RUN      ] Kernel.Faults'; echo 'an \"illegal\" address \\ here' >&2; kill -SEGV $$",
    "hang": "echo '[ RUN      ] Kernel.Waits'; sleep 100",
    "stubborn": "trap '' TERM; while true; do sleep 0.1; done",
    # Fails if another of its kind runs at the same time.
    "alone": 'mkdir "$1" || exit 1; sleep 1; rmdir "$1"',
    "libraries": 'echo "libraries: $LD_LIBRARY_PATH"; exit 1',
    "absent": "echo 'no GPU: no CUDA-capable device is detected' >&2; exit 77",
    "measure": "echo '{\"part\": \"a\", \"name\": \"read of all\", \"us\": 1, \"floor_us\": 0.5, \"share\": 0.5, \"TB/s\": 4}' >$2; echo '{\"part\": \"b\", \"note\": \"x\"}' >>$2; echo shown",
    "finds": "echo '========= COMPUTE-SANITIZER'; echo '========= Invalid __global__ write of size 4 bytes'; sleep 100",
    "broken": "printf '{\"part\": \"a\", \"name\": \"n\", \"us\": 1, \"floor_us\": 1, \"share\": 1}\\n{\"part\": \"b\", ' >$2; kill -ABRT $$",
}

# What is found on PATH.
TOOLS = {
    "compute-sanitizer": 'exec "$@"',
}


def write_scripts(folder, scripts):
    os.makedirs(folder)
    for name, text in scripts.items():
        with open(f"{folder}/{name}", "w") as file:
            file.write(f"#!/bin/bash\n{text}\n")
        os.chmod(f"{folder}/{name}", 0o755)


def copy_script(folder, limit):
    """tests/gpu/run with so many seconds for everything, and the toolkit in a folder."""
    with open(f"{HERE}/run") as file:
        text = file.read()
    for name, value in (("LIMIT", limit), ("TOOLKIT", f"{folder}/toolkit")):
        text, found = re.subn(rf"(?m)^{name}=\S+", f"{name}={value}", text)
        assert found == 1, name
    with open(f"{folder}/run", "w") as file:
        file.write(text)
    os.chmod(f"{folder}/run", 0o755)


def nvidia_smi(**answers):
    """A tool with an answer to each property that is asked for; to another, none."""
    cases = " ".join(f"--query-gpu={name}) echo '{answer}' ;;" for name, answer in answers.items())
    return {"nvidia-smi": f"case $1 in {cases} *) echo 'NVIDIA-SMI has failed'; exit 9 ;; esac"}


def run(parts, limit=60, tools={}, toolkit=()):
    """(exit status, stdout, results.json, table) of a folder with these parts, and these folders in the toolkit."""
    folder = tempfile.mkdtemp()
    try:
        os.makedirs(f"{folder}/data/tests/goldens")
        copy_script(folder, limit)
        write_scripts(f"{folder}/bin", PROGRAMS)
        for name in toolkit:
            os.makedirs(f"{folder}/toolkit/{name}")
        write_scripts(f"{folder}/tools", {**TOOLS, **tools})
        with open(f"{folder}/parts", "w") as file:
            file.write("# name seconds shards command\n\n" + "\n".join(parts) + "\n")
        done = subprocess.run([f"{folder}/run"], capture_output=True, text=True, timeout=60, cwd="/",
                              env={**os.environ, "PATH": f"{folder}/tools:{os.environ['PATH']}"})
        print(done.stdout, done.stderr)
        if os.path.exists(f"{folder}/results/good.0.log"):
            with open(f"{folder}/results/good.0.log") as file:
                assert f"in {folder}/data" in file.read(), "programs start where the goldens are"
        table = subprocess.run([f"{HERE}/table.py", f"{folder}/results/results.json"], capture_output=True, text=True)
        assert table.returncode == 0, table.stderr
        with open(f"{folder}/results/results.json") as file:
            results = json.load(file)
        for part in results["parts"]:
            assert f"| {part['name']} | {part['verdict']} |" in table.stdout, table.stdout
        return done.returncode, done.stdout, results, table.stdout
    finally:
        shutil.rmtree(folder)


def filters(tool):
    """The --gtest_filter of each part under this tool of compute-sanitizer."""
    with open(f"{HERE}/parts") as file:
        lines = [line.strip() for line in file if f"compute-sanitizer --tool {tool} " in line]
    found = [line.split("--gtest_filter=")[1] for line in lines]
    assert found, tool
    return found


def takes(gtest_filter, test):
    positive, _, negative = gtest_filter.partition("-")
    among = lambda patterns: any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns.split(":"))
    return among(positive or "*") and not among(negative)


def failing_calls_stay_out_of_memcheck():
    with open(f"{HERE}/../cuda/cuda_ops_test.cc") as file:
        assert "TEST(CudaOps, SaysWhatMemoryItLacks)" in file.read(), "which test asks for too much memory?"
    for gtest_filter in filters("memcheck"):
        assert not takes(gtest_filter, "CudaOps.SaysWhatMemoryItLacks"), gtest_filter
    assert any(takes(gtest_filter, "Norm.TakesRows") for gtest_filter in filters("memcheck"))


def verdicts_of(results):
    return {part["name"]: part["verdict"] for part in results["parts"]}


def checks_take_what_time_is_left():
    status, out, results, _ = run(["good 5 1 bin/good", "slow 1 1 compute-sanitizer bin/hang",
                                   "wait 4 0 compute-sanitizer bin/hang", "late 5 2 compute-sanitizer bin/good"], limit=3)
    assert verdicts_of(results) == {"good": "passed", "slow": "timed out", "wait": "timed out", "late.0": "not started",
                                    "late.1": "not started"}, results
    assert status == 0 and "0 bad, 4 unfinished" in out, (status, out)
    # But not to forget what they have found; and it is theirs alone.
    assert run(["finds 1 1 compute-sanitizer bin/finds"])[0] == 1
    assert run(["fails 5 1 compute-sanitizer bin/bad"])[0] == 1
    assert run(["wait 4 0 compute-sanitizer bin/hang", "late 5 1 bin/good"], limit=1)[0] == 1


def an_exclusive_gpu_has_one_process_at_a_time():
    with tempfile.TemporaryDirectory() as folder:
        parts = [f"a 5 2 bin/alone {folder}/busy", f"b 5 1 bin/alone {folder}/busy"]
        status, out, _, _ = run(parts, tools=nvidia_smi(compute_mode="Exclusive_Process"))
        assert status == 0 and "one process at a time" in out, (status, out)
        status, out, results, _ = run(parts, tools=nvidia_smi(compute_mode="Default"))
        assert status == 1 and "one process at a time" not in out, (status, out)
        assert run(["good 5 1 bin/good"], tools=nvidia_smi())[2]["device"] == "unknown"


def an_old_driver_takes_what_goes_between():
    def libraries(driver, toolkit):
        smi = nvidia_smi(driver_version=driver) if driver else {"nvidia-smi": "exit 127"}
        _, out, results, _ = run(["libraries 5 1 bin/libraries"], tools=smi, toolkit=toolkit)
        assert out.startswith(f"driver {driver or 'unknown'}\n"), out
        return results["parts"][0]["reason"], out

    assert "/toolkit/compat:" in libraries("570.86.15", ["compat"])[0]
    reason, out = libraries("570.86.15", [])
    assert "compat" not in reason and "the programs need 580 or newer, or its libraries in" in out, out
    for driver in ("580.65.06", "600.1", None):
        reason, out = libraries(driver, ["compat"])
        assert "compat" not in reason and "the programs need" not in out, (driver, reason, out)


def main():
    an_old_driver_takes_what_goes_between()
    an_exclusive_gpu_has_one_process_at_a_time()
    failing_calls_stay_out_of_memcheck()
    checks_take_what_time_is_left()
    status, out, results, table = run([
        "good 5 3 bin/good", "bad 5 1 bin/bad", "crash 5 1 bin/crash", "hang 1 1 bin/hang", "stubborn 1 0 bin/stubborn",
        "absent 5 0 bin/absent", "measure 5 0 bin/measure --json @JSON", "broken 5 0 bin/broken --json @JSON",
        "tool 5 0 no-such-tool bin/good", "beside 5 1 no-such-tool bin/good", "lost 5 0 bin/lost", "last 5 0 bin/good"])
    parts = {part["name"]: part for part in results["parts"]}
    verdicts = verdicts_of(results)
    assert verdicts == {
        "good.0": "passed", "good.1": "passed", "good.2": "passed", "bad": "failed (1)", "crash": "crashed (SEGV)",
        "hang": "timed out", "stubborn": "timed out", "absent": "no GPU", "measure": "passed", "broken": "crashed (ABRT)",
        "tool": "skipped", "beside": "skipped", "lost": "failed (127)", "last": "passed"}, verdicts
    assert parts["bad"]["reason"] == "A.B C.D/0", parts["bad"]
    assert parts["crash"]["reason"].startswith('in Kernel.Faults: an "illegal" address \\ here'), parts["crash"]
    assert parts["hang"]["reason"].startswith("in Kernel.Waits"), parts["hang"]
    assert parts["absent"]["reason"] == "no GPU: no CUDA-capable device is detected", parts["absent"]
    assert parts["tool"]["reason"] == "there is no no-such-tool", parts["tool"]
    assert [m["part"] for m in parts["measure"]["measured"]] == ["a", "b"], parts["measure"]
    assert [m["us"] for m in parts["broken"]["measured"]] == [1], parts["broken"]
    assert parts["hang"]["ms"] < 3000 and parts["stubborn"]["ms"] < 8000
    assert status == 1, status
    for name, verdict in verdicts.items():
        assert any(line.startswith(name + " ") and verdict in line for line in out.splitlines()), (name, out)
    assert "shown" in out
    assert "| read of all | 1 | 0.5 | 0.5 | 4 |" in table, table

    assert run(["absent 5 1 bin/absent", "good 5 0 bin/good"])[0] == 77
    assert run(["absent 5 1 bin/absent", "bad 5 0 bin/bad"])[0] == 1
    assert run(["good 5 2 bin/good", "tool 5 0 no-such-tool", "beside 5 1 no-such-tool", "other 5 1 no-such-tool"])[0] == 0

    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/tests/gpu")
        shutil.copy(f"{HERE}/run", f"{folder}/tests/gpu")
        alone = subprocess.run([f"{folder}/tests/gpu/run"], capture_output=True, text=True, timeout=60)
        assert alone.returncode == 2 and "tests/gpu/build" in alone.stderr, alone


main()
