#!/usr/bin/env python3
"""Writes unicode_case.inc: what this Python's str methods know about single characters beyond their general category.

A run {first, last, stride, delta} maps first, first + stride, ..., last to itself + delta. A special maps one character to
up to three. Title and Fold hold only what upper() and lower() do not already say. The ranges {first, last} are characters
for which a method is true although the category (Ll, Lu, Nd, ...) does not say so.
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


def exceptions(convert, usual):
    """The characters that `convert` does not do as `usual` does."""
    return {code: convert(chr(code)) for code in range(0x110000) if convert(chr(code)) != usual(chr(code))}


def ranges(holds, categories):
    rows = []
    for code in range(0x110000):
        if not holds(chr(code)) or unicodedata.category(chr(code)) in categories:
            continue
        if rows and rows[-1][1] == code - 1:
            rows[-1][1] = code
        else:
            rows.append([code, code])
    return rows


def emit_ranges(name, rows):
    print(f"constexpr CharRange k{name}[] = {{")
    for i in range(0, len(rows), 6):
        print("    " + " ".join(f"{{0x{a:X}, 0x{b:X}}}," for a, b in rows[i : i + 6]))
    print("};")


def emit(name, rows, special):
    print(f"constexpr CaseRun k{name}Runs[] = {{")
    for i in range(0, len(rows), 4):
        print("    " + " ".join(f"{{0x{a:X}, 0x{b:X}, {s}, {d}}}," for a, b, s, d in rows[i : i + 4]))
    print("};")
    emit_specials(name, special)


def emit_specials(name, special):
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
emit_specials("Title", exceptions(str.title, str.upper))
emit_specials("Fold", exceptions(str.casefold, str.lower))
emit_ranges("OtherLowercase", ranges(str.islower, {"Ll"}))
emit_ranges("OtherUppercase", ranges(str.isupper, {"Lu"}))
emit_ranges("OtherDigits", ranges(str.isdigit, {"Nd"}))
emit_ranges("OtherNumbers", ranges(str.isnumeric, {"Nd", "Nl", "No"}))
print("// clang-format on")
