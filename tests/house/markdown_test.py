#!/usr/bin/env python3
"""What Markdown files point to exists: the targets and anchors of their links, and the files that they name."""

import itertools
import os
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEFT_OUT = {".git", "build", ".cache", ".venv", "__pycache__"}  # where there is no git to ask
SOURCES = {".cc", ".h", ".cu", ".cuh", ".proto", ".py", ".toml", ".md", ".dict", ".txt"}


def files_of_the_tree():
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
        if listed.returncode == 0:
            return [f for f in listed.stdout.splitlines() if (ROOT / f).exists()]
    files = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in LEFT_OUT]
        files += [(pathlib.Path(folder) / name).relative_to(ROOT).as_posix() for name in names]
    return files


FILES = files_of_the_tree()
FOLDERS = sorted({parent.as_posix() for f in FILES for parent in pathlib.PurePosixPath(f).parents} - {"."})
TOP_FOLDERS = tuple(f + "/" for f in FOLDERS if "/" not in f and not f.startswith("."))


def without_code_blocks(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text):
    """GitHub's: headings in lower case, punctuation left out, spaces as hyphens."""
    headings = re.findall(r"^#+\s+(.+)$", without_code_blocks(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(name, text):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code_blocks(text)):
        if re.match(r"[a-z]+://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        if not file.exists():
            broken.append(target)
        elif anchor and file.suffix == ".md" and anchor not in anchors(text if not path else file.read_text()):
            broken.append(target)
    return broken


def expand_braces(path):
    """a.{h,cc} as a.h and a.cc."""
    parts = re.split(r"\{([^}]*)\}", path)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*choices)]


def exists(path):
    """As a path from the root, or as the end of one; without its extension where it has none."""
    ends = [path] if pathlib.PurePosixPath(path).suffix else [path, path + "."]
    for known in itertools.chain(FILES, FOLDERS):
        for end in ends:
            at = known.find(end) if end.endswith(".") else (len(known) - len(end) if known.endswith(end) else -1)
            if at == 0 or (at > 0 and known[at - 1] == "/"):
                return True
    return False


def missing_files(text):
    """Of the files and folders that code spans name."""
    missing = []
    for span in re.findall(r"`([^`\n]+)`", without_code_blocks(text)):
        words = span.split()
        path = words[0].rstrip("/")
        if not re.fullmatch(r"[\w./{},-]+", path) or path.startswith(("/", "build/", "-")):
            continue
        is_source = pathlib.PurePosixPath(expand_braces(path)[0]).suffix in SOURCES
        if is_source or path.startswith(TOP_FOLDERS):
            missing += [p for p in expand_braces(path) if not exists(p)]
    return missing


class Markdown(unittest.TestCase):
    def test_links_lead_somewhere(self):
        names = [f for f in FILES if f.endswith(".md")]
        self.assertGreater(len(names), 10)
        for name in names:
            with self.subTest(name):
                self.assertEqual(broken_links(name, (ROOT / name).read_text()), [])

    def test_named_files_exist(self):
        for name in [f for f in FILES if f.endswith(".md")]:
            with self.subTest(name):
                self.assertEqual(missing_files((ROOT / name).read_text()), [])

    def test_what_is_missing_is_found(self):
        self.assertEqual(broken_links("README.md", "[a](docs/nowhere.md) [b](#the-parts) [c](CMakeLists.txt)"), ["docs/nowhere.md", "#the-parts"])
        self.assertEqual(broken_links("docs/glossary.md", "# A b\n[a](#a-b) [b](../README.md#the-parts) [c](../README.md#no)"), ["../README.md#no"])
        self.assertEqual(missing_files("`engine/engine.{h,cc}` `engine/engine.{h,cu}` `engine.h` `ngine.h` `engine/text/tokenizer`"),
                         ["engine/engine.cu", "ngine.h"])
        self.assertEqual(missing_files("`tests/run --setup` `tests/fuzz` `tests/nowhere` `/metrics` `f(x)` `--flag`"), ["tests/nowhere"])


if __name__ == "__main__":
    unittest.main()
