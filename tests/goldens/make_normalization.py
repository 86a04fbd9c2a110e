#!/usr/bin/env python3
"""Makes normalization.jsonl: where Hugging Face `tokenizers` differs from Unicode 15's NormalizationTest.txt.

  pip install tokenizers==0.23.3
  tests/goldens/make_normalization.py [--cache DIR]

DIR (default ${XDG_CACHE_HOME:-~/.cache}/sluice) holds unicode/NormalizationTest.txt and unicode/DerivedAge.txt, which tests/run
fetches (Debian package unicode-data). The library's tables are those of Unicode 9, so it leaves alone what came later; everything
else must be as the file says, or this stops. A line is [FORM, text, what the library makes of it].
"""

import argparse
import json
import os
import pathlib

from tokenizers import normalizers

HERE = pathlib.Path(__file__).resolve().parent
FORMS = {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD()}


def fields(path):
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line and not line.startswith("@"):
            yield [field.strip() for field in line.split(";")]


def characters_of_unicode_9(path):
    known = set()
    for points, version in fields(path):
        first, _, last = points.partition("..")
        if tuple(map(int, version.split("."))) <= (9, 0):
            known.update(range(int(first, 16), int(last or first, 16) + 1))
    return known


def main():
    parser = argparse.ArgumentParser()
    default = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "sluice"
    parser.add_argument("--cache", type=pathlib.Path, default=default)
    unicode = parser.parse_args().cache / "unicode"
    known = characters_of_unicode_9(unicode / "DerivedAge.txt")
    exceptions = {}
    for row in fields(unicode / "NormalizationTest.txt"):
        columns = ["".join(chr(int(point, 16)) for point in field.split()) for field in row[:5]]
        c1, c2, c3, c4, c5 = columns
        results = {"NFC": (c2, c2, c2, c4, c4), "NFD": (c3, c3, c3, c5, c5), "NFKC": (c4,) * 5, "NFKD": (c5,) * 5}
        for form, expected in results.items():
            for text, result in zip(columns, expected):
                found = FORMS[form].normalize_str(text)
                if found != result:
                    assert any(ord(c) not in known for c in "".join(columns)), (form, text, result, found)
                    exceptions[form, text] = found
    lines = [json.dumps([form, text, found], separators=(",", ":")) for (form, text), found in exceptions.items()]
    (HERE / "normalization.jsonl").write_text("\n".join(lines) + "\n")
    print(len(lines), "exceptions")


if __name__ == "__main__":
    main()
