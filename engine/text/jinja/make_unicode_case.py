#!/usr/bin/env python3
"""Writes unicode_case.inc: what str.upper() and str.lower() of this Python do to single characters.

A run {first, last, stride, delta} maps first, first + stride, ..., last to itself + delta. A special maps one character to
up to three.
"""
import sys
import unicodedata


def runs(convert):
    simple, special = {}, {}
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        mapped = convert(chr(code))
        if mapped == chr(code):
            continue
        if len(mapped) == 1:
            simple[code] = ord(mapped) - code
        else:
            special[code] = mapped
    rows = []
    while simple:
        first = min(simple)
        best = (first, 1)
        for stride in (1, 2):
            last = first
            while simple.get(last + stride) == simple[first]:
                last += stride
            best = max(best, (last, stride), key=lambda b: (b[0] - first) // b[1])
        last, stride = best
        rows.append((first, last, stride, simple[first]))
        for code in range(first, last + 1, stride):
            del simple[code]
    return rows, special


def emit(name, rows, special):
    print(f"constexpr CaseRun k{name}Runs[] = {{")
    for i in range(0, len(rows), 4):
        print("    " + " ".join(f"{{0x{a:X}, 0x{b:X}, {s}, {d}}}," for a, b, s, d in rows[i : i + 4]))
    print("};")
    print(f"constexpr CaseSpecial k{name}Specials[] = {{")
    items = sorted(special.items())
    for i in range(0, len(items), 4):
        cells = []
        for code, mapped in items[i : i + 4]:
            targets = [ord(c) for c in mapped] + [0] * (3 - len(mapped))
            cells.append(f"{{0x{code:X}, {{" + ", ".join(f"0x{t:X}" for t in targets) + "}},")
        print("    " + " ".join(cells))
    print("};")


sys.stdout.reconfigure(encoding="utf-8")
print(f"// Written by make_unicode_case.py (Unicode {unicodedata.unidata_version}). Do not edit.")
print("// clang-format off")
emit("Upper", *runs(str.upper))
emit("Lower", *runs(str.lower))
print("// clang-format on")
