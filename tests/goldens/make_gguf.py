#!/usr/bin/env python3
"""Makes the GGUF twins of the tiny models with llama.cpp's own converter.

    pip download --no-binary :all: --no-deps llama-cpp-python==0.3.36 && tar xzf llama_cpp_python-0.3.36.tar.gz
    V/bin/python tests/goldens/make_gguf.py llama_cpp_python-0.3.36/vendor/llama.cpp [--only SUBSTRING...]

V is the environment of make.py. The tiny models have no vocabulary, so the converter is told to write none. Writes
models/<case>/model.gguf; a case that has no twin says why in golden_cases.py (no_gguf). The golden logits are the twin's
too.
"""

import argparse
import json
import logging
import pathlib
import shutil
import sys
import tempfile

import golden_cases

MODELS = pathlib.Path(__file__).parent / "models"
OUT_TYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}


def convert(converter, case, folder, out):
    """Runs the converter's main on a copy of the folder; its error as text, or None."""
    get_model_class = converter.get_model_class

    def without_vocabulary(*args, **kwargs):
        model_class = get_model_class(*args, **kwargs)
        model_class.set_vocab = lambda self: self._set_vocab_none()
        return model_class

    converter.get_model_class = without_vocabulary
    sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(out), "--outtype", OUT_TYPES[case.dtype],
                "--model-name", case.name]
    try:
        converter.main()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        converter.get_model_class = get_model_class
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("llama_cpp", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=[""])
    args = parser.parse_args()
    sys.path[:0] = [str(args.llama_cpp), str(args.llama_cpp / "gguf-py")]
    import convert_hf_to_gguf

    logging.disable(logging.INFO)
    for case in golden_cases.CASES:
        if not any(part in case.name for part in args.only) or case.no_gguf:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / case.name
            shutil.copytree(MODELS / case.name, folder, ignore=shutil.ignore_patterns("golden.*", "*.gguf"))
            if (folder / "published.json").exists():
                (folder / "published.json").rename(folder / "config.json")
            if case.model_class.startswith("Gemma3"):  # its converter counts the vocabulary
                vocab = {f"token {i}": i for i in range(case.config["vocab_size"])}
                (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": []}))
            made = folder / "model.gguf"
            why = convert(convert_hf_to_gguf, case, folder, made)
            if why is not None:
                sys.exit(f"{case.name}: {why}")
            shutil.copy(made, MODELS / case.name / "model.gguf")
        print(f"{case.name}: made", flush=True)


if __name__ == "__main__":
    main()
