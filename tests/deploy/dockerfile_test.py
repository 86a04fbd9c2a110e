#!/usr/bin/env python3
"""The Dockerfile as replay_dockerfile reads it (what it makes is built by clean_root), and what that reader refuses."""

import importlib.machinery
import importlib.util
import os
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def load(path):
    loader = importlib.machinery.SourceFileLoader("replay_dockerfile", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


replay = load(f"{HERE}/replay_dockerfile")


def stages_of(path=f"{ROOT}/Dockerfile"):
    with open(path) as file:
        return replay.parse(file.read())


def chain(stages, name):
    """The steps that make a stage's image, from the first."""
    stage = stages[name]
    return (chain(stages, stage.base) if stage.base in stages else []) + stage.steps


class OurDockerfile(unittest.TestCase):
    def test_both_targets_end_as_a_user_that_is_not_root(self):
        stages = stages_of()
        for target in ("cpu", "cuda"):
            users = [step.rest for step in chain(stages, target) if step.word == "USER"]
            self.assertTrue(users, target)
            self.assertRegex(users[-1], r"^[1-9][0-9]*(:[0-9]+)?$")  # a number: Kubernetes checks runAsNonRoot by it

    def test_the_cpu_image_is_the_default_target(self):
        self.assertEqual(list(stages_of())[-1], "cpu")

    def test_every_copy_from_a_stage_names_one_before_it(self):
        seen = []
        for name, stage in stages_of().items():
            for step in stage.steps:
                for flag in step.flags:
                    if flag.startswith("--from="):
                        self.assertIn(flag.removeprefix("--from="), seen)
            seen.append(name)

    def test_it_installs_the_packages_that_lib_sh_lists(self):
        with open(f"{ROOT}/deploy/lib.sh") as file:
            text = file.read()
        listed = set(text.split("BUILD_PACKAGES=(")[1].split(")")[0].split())
        step = next(step for step in stages_of()["packages"].steps if "apt-get install" in step.rest)
        words = step.rest.split("--no-install-recommends")[1].split("&&")[0].split()
        # What fetches the model is not for an image.
        self.assertEqual(listed - set(words), {"python3-pip", "python3-venv"})
        self.assertEqual(set(words) - listed, set())


class Reader(unittest.TestCase):
    def test_joins_lines_and_leaves_comments_out(self):
        stages = replay.parse("# syntax\nFROM debian:12 AS a\nRUN one \\\n# between\n  && two\nENV A=1\n")
        self.assertEqual([(step.line, step.word, step.rest) for step in stages["a"].steps], [(3, "RUN", "one && two"), (6, "ENV", "A=1")])

    def test_flags_are_not_part_of_the_command(self):
        step = replay.parse("FROM x AS a\nRUN --mount=type=cache,target=/c --network=none make --jobs=2\n")["a"].steps[0]
        self.assertEqual((step.flags, step.rest), (["--mount=type=cache,target=/c", "--network=none"], "make --jobs=2"))

    def test_refuses_what_it_does_not_know(self):
        for text in ("FROM debian:12\n", "RUN a\n", "FROM --platform=x y AS z\n", "FROM x AS a\nRUN one \\\n"):
            with self.assertRaises(replay.DockerfileError, msg=text):
                replay.parse(text)

    def test_dockerignore_at_the_root_and_anywhere(self):
        patterns = [".git", "build", "*.gguf", "**/__pycache__"]
        for path in (".git", "build", "build/bin/sluice", "model.gguf", "tests/__pycache__", "tests/a/__pycache__/b.pyc"):
            self.assertTrue(replay.ignored(path, patterns), path)
        for path in ("tests/goldens/model.gguf", "tests/gpu/build", "tests/build.cc", ".gitignore"):
            self.assertFalse(replay.ignored(path, patterns), path)


if __name__ == "__main__":
    unittest.main()
