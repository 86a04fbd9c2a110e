#!/usr/bin/env python3
"""Makes the tiny models of models/ and the logits that an independent implementation computes from them.

transformers on CPU torch, float32, eager attention and eager experts. Nothing of Sluice takes part.

    python3 -m venv V && V/bin/pip install torch==2.12.1 transformers==5.24.0 safetensors
    V/bin/python tests/goldens/make.py [--only SUBSTRING...]

Writes, per case of golden_cases.py, models/<case>/
    config.json, model*.safetensors   as transformers writes them (rewritten where the case says so)
    published.json                    config.json as such models are published, where that looks different
    golden.json                       sequences of token ids; where things are in golden.bin
    golden.bin                        little-endian: per sequence f32 logits [tokens][vocab], then f16 hidden states
                                      [layers][state_positions][d_model] behind each layer
and models/mistakes.json, models/README.md: how far each mistake of golden_mistakes.py moves the logits, relative to
max |logit|. A case is refused, and another seed tried, if a mistake moves them by less than 2e-4. Tokens are such that
every expert is chosen by a margin of at least 1e-3. A case's folder is made anew: make_gguf.py comes after.
"""

import argparse
import contextlib
import copy
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch
import transformers

import golden_cases
import golden_mistakes
import golden_pack

MODELS = pathlib.Path(__file__).parent / "models"
MIN_MOVE = 2e-4
MIN_MARGIN = 1e-3
NUM_STATES = 8  # positions per sequence whose hidden states are kept


def build(case, state, **changes):
    config = case.build_config(**changes)
    return build_from(getattr(transformers, case.model_class), config, state)


def build_from(cls, config, state):
    model = cls._from_config(config, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)
    model.load_state_dict({k: v.float() for k, v in state.items()}, strict=True)
    return model.eval()


def draw_state(case, seed):
    """Weights that make nothing flat, rounded to the type they are stored in."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda shape, std: torch.randn(shape, generator=generator) * std
    uniform = lambda shape, low, high: torch.rand(shape, generator=generator) * (high - low) + low
    model = getattr(transformers, case.model_class)._from_config(case.build_config(), dtype=torch.float32)
    kind, tied = model.config.model_type, model.config.tie_word_embeddings
    state = {}
    for name, value in model.state_dict().items():
        shape, leaf = value.shape, name.split(".")[-2] if "." in name else name
        if name == "lm_head.weight" and tied:
            continue
        if name.endswith("sinks"):
            drawn = normal(shape, 1.0)
        elif name.endswith("e_score_correction_bias"):
            drawn = uniform(shape, -0.9, 0.1)
        elif name.endswith("bias"):
            drawn = normal(shape, 0.5)
        elif "norm" in leaf or leaf.startswith("ln_"):
            drawn = uniform(shape, -0.5, 0.5) if kind.startswith("gemma") else uniform(shape, 0.5, 1.5)
        elif leaf in ("embed_tokens", "wte", "wpe"):
            drawn = normal(shape, (0.5 if leaf == "wpe" else 1.5) / shape[1] ** 0.5)
        elif leaf in ("gate", "router"):
            drawn = normal(shape, 3.0 / shape[1] ** 0.5)
        else:
            in_first = kind == "gpt2" and leaf != "lm_head" or kind in ("gpt_oss", "llama4_text") and value.dim() == 3
            fan_in = shape[-2] if in_first else shape[-1]
            # GPT-2's feed-forward speaks up, or the two forms of GELU could not be told apart.
            std = 6.0 if name.endswith("mlp.c_proj.weight") else 1.5
            if name.endswith("experts.gate_up_proj"):
                std = case.gate_up_std
            drawn = normal(shape, std / fan_in**0.5)
        state[name] = drawn.to(getattr(torch, case.dtype)).float()
    if tied:
        state["lm_head.weight"] = state["transformer.wte.weight" if kind == "gpt2" else "model.embed_tokens.weight"]
    return state


def quantize(case, state):
    """Replaces weights by what their packed forms stand for; returns the packed tensors by the name in `state`."""
    packed = {}
    if case.quantization == "fp8":
        for name in list(state):
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                parts = []
                for expert in state[name]:
                    halves = expert.chunk(2) if "gate_up" in name else [expert]
                    parts.append([golden_pack.pack_fp8(h) for h in halves])
                state[name] = torch.stack([torch.cat([p[2] for p in expert]) for expert in parts])
        for name in golden_pack.fp8_names(state):
            state[name] = golden_pack.pack_fp8(state[name])[2]
    if case.quantization == "mxfp4":
        for name in list(state):
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                blocks, scales, values = golden_pack.pack_mxfp4(state[name].transpose(1, 2).contiguous())
                state[name] = values.transpose(1, 2).contiguous()
                packed[name] = (blocks, scales)
    return packed


@torch.no_grad()
def run(model, tokens, patch=None):
    with patch(model) if patch else contextlib.nullcontext():
        return model(torch.tensor([tokens]), use_cache=False).logits[0]


@torch.no_grad()
def run_with_states(model, tokens):
    """Logits, the hidden states behind each layer, the smallest routing margin of each position."""
    layers = model.transformer.h if model.config.model_type == "gpt2" else model.model.layers
    states, margins, handles = [], [], []
    for layer in layers:
        handles.append(layer.register_forward_hook(
            lambda m, x, y: states.append((y[0] if isinstance(y, tuple) else y)[0].clone())))
    rule = golden_mistakes.routing_of(model.config)
    for router in golden_mistakes.routers(model):
        bias = getattr(router, "e_score_correction_bias", None)
        def note(module, x, y, bias=bias):
            logits = y[1] if model.config.model_type == "llama4_text" else y[0]
            margins.append(rule.margin(logits.float(), bias))
        handles.append(router.register_forward_hook(note))
    logits = run(model, tokens)
    for handle in handles:
        handle.remove()
    return logits, torch.stack(states), torch.stack(margins).amin(0) if margins else torch.ones(len(tokens))


def measure(case, state, sequences, goldens):
    """How far each mistake moves the logits, relative to max |logit|."""
    largest = max(float(g.abs().max()) for g in goldens)
    moved = {}
    for mistake in golden_mistakes.mistakes(case, case.build_config(), state):
        if any(part in mistake.name for part in case.blind):
            continue
        wrong = dict(state)
        if mistake.state:
            mistake.state(wrong)
        far = 0.0
        for tokens, golden in zip(sequences, goldens):
            changes = copy.deepcopy(mistake.config)
            model = build(case, wrong, **changes)
            if mistake.model:
                mistake.model(model)
            logits = run(model, tokens, mistake.patch)
            far = max(far, float((logits - golden).abs().nan_to_num(1e3, 1e3).max()) / largest)
        moved[mistake.name] = far
    return moved


def write_folder(case, folder, state, packed):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = build(case, state).to(getattr(torch, case.dtype))
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        tensors = safetensors.torch.load_file(pathlib.Path(scratch) / "model.safetensors")
        config = json.loads((pathlib.Path(scratch) / "config.json").read_text())
        shutil.copy(pathlib.Path(scratch) / "generation_config.json", folder)
    if case.quantization == "fp8":
        f32 = build(case, state)
        with tempfile.TemporaryDirectory() as scratch:
            f32.save_pretrained(scratch)
            exact = safetensors.torch.load_file(pathlib.Path(scratch) / "model.safetensors")
        for name in golden_pack.fp8_names(tensors):
            weight, scales, values = golden_pack.pack_fp8(exact[name])
            assert torch.equal(values, exact[name]), name
            tensors[name], tensors[name + "_scale_inv"] = weight, scales
        config["quantization_config"] = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                         "weight_block_size": [128, 128]}
    if case.quantization == "mxfp4":
        for name, (blocks, scales) in packed.items():
            del tensors[name]
            tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    if case.rewrite:
        case.rewrite(tensors, config)
    tensors = {name: value.contiguous() for name, value in sorted(tensors.items())}
    if case.shards == 1:
        safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        index, names = {}, list(tensors)
        for shard in range(case.shards):
            file = f"model-{shard + 1:05}-of-{case.shards:05}.safetensors"
            part = names[shard::case.shards]
            safetensors.torch.save_file({n: tensors[n] for n in part}, folder / file, metadata={"format": "pt"})
            index.update({n: file for n in part})
        total = sum(v.numel() * v.element_size() for v in tensors.values())
        (folder / "model.safetensors.index.json").write_text(json.dumps(
            {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}, indent=1) + "\n")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if case.published:
        (folder / "published.json").write_text(json.dumps(case.published(config), indent=2) + "\n")


def check_folder(case, folder, state, sequences, goldens):
    """What transformers reads back from the folder, and from published.json, is the very same model."""
    names = ["config.json"] + (["published.json"] if case.published else [])
    for name in names:
        config = json.loads((folder / name).read_text())
        config.pop("quantization_config", None)
        config.pop("auto_map", None)
        config = config.get("text_config", config)
        if config["model_type"] == "kimi_k2":
            config["model_type"] = "deepseek_v3"
        with tempfile.TemporaryDirectory() as scratch:
            (pathlib.Path(scratch) / "config.json").write_text(json.dumps(config))
            loaded = transformers.AutoConfig.from_pretrained(scratch)
        for tokens, golden in zip(sequences, goldens):
            model = build_from(getattr(transformers, case.model_class), loaded, state)
            assert torch.equal(run(model, tokens), golden), f"{case.name}: {name} gives another model"


def draw_tokens(case, state, length, generator):
    """Tokens that no router is in doubt about: the first doubtful one is exchanged until there is none."""
    tokens = generator.integers(3, case.config["vocab_size"], length).tolist()
    for _ in range(40 * length):
        # A fresh model each time: the rules that look at the length remember the longest seen.
        logits, states, margins = run_with_states(build(case, state), tokens)
        doubtful = (margins < MIN_MARGIN).nonzero()
        if len(doubtful) == 0:
            return tokens, logits, states
        tokens[int(doubtful[0])] = int(generator.integers(3, case.config["vocab_size"]))
    sys.exit(f"{case.name}: found no tokens with clear routing")


def make(case, seed):
    state = draw_state(case, seed)
    packed = quantize(case, state)
    vocab = case.config["vocab_size"]
    generator = np.random.default_rng(seed)
    sequences, goldens, states = map(list, zip(*(draw_tokens(case, state, n, generator) for n in case.lengths)))
    moved = measure(case, state, sequences, goldens)
    weak = {k: v for k, v in moved.items() if v < MIN_MOVE}
    if weak:
        return "not moved by " + ", ".join(f"{k} ({v:.1e})" for k, v in weak.items()), None

    folder = MODELS / case.name
    write_folder(case, folder, state, packed)
    check_folder(case, folder, state, sequences, goldens)
    golden = {"row": case.row, "seed": seed, "made_with": {"torch": torch.__version__,
              "transformers": transformers.__version__}, "num_layers": int(states[0].shape[0]), "vocab_size": vocab,
              "d_model": int(states[0].shape[2]), "max_abs": max(float(g.abs().max()) for g in goldens),
              "sequences": []}
    with open(folder / "golden.bin", "wb") as out:
        for tokens, logits, behind in zip(sequences, goldens, states):
            positions = sorted(set(np.linspace(0, len(tokens) - 1, NUM_STATES).round().astype(int).tolist()))
            entry = {"tokens": tokens, "logits_offset": out.tell(), "state_positions": positions}
            out.write(logits.numpy().astype("<f4").tobytes())
            entry["states_offset"] = out.tell()
            out.write(behind[:, positions].numpy().astype("<f2").tobytes())
            golden["sequences"].append(entry)
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    return None, moved


def write_readme(table):
    lines = ["# Tiny models and their logits", "",
             f"Made by `tests/goldens/make.py` with torch {torch.__version__.split('+')[0]} and transformers "
             f"{transformers.__version__} on the CPU: float32,",
             "eager attention, eager experts. The script's head says how to run it and what the files hold.", "",
             "`model.gguf` is the same model through llama.cpp's converter (`tests/goldens/make_gguf.py`); where a",
             "case has none, the last column says why. \"mistakes\" counts the ways to get the case wrong that were",
             "tried on transformers' own model, \"least move\" is how far the mildest of them moves a logit, relative",
             "to the largest: the tests allow 1e-4, and a case that a mistake moves by less than 2e-4 is not made.", "",
             "`tests/model/golden_test.cc` (reference and CPU; the folder, the config as published, the twin) and",
             "`tests/e2e/golden_logprobs_test.py` (the server) read every folder that is here.", "",
             "| case | architecture | class | stored as | sequence lengths | mistakes | least move | GGUF twin |",
             "|---|---|---|---|---|---|---|---|"]
    for case in golden_cases.CASES:
        moved = table.get(case.name)
        if moved is None:
            continue
        least = min(moved, key=moved.get)
        stored = case.quantization or {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}[case.dtype]
        stored += f", {case.shards} shards" if case.shards > 1 else ""
        lines.append(f"| {case.name} | {case.row} | {case.model_class} | {stored} | "
                     f"{', '.join(map(str, case.lengths))} | {len(moved)} | {moved[least]:.1e} | "
                     f"{case.no_gguf or 'yes'} |")
    lines += ["", "## How far each mistake moves the logits", "",
              "Largest difference of any logit, relative to the largest logit. Above 1 the model is another one.", ""]
    for case in golden_cases.CASES:
        if case.name in table:
            blind = f" (not there to find: {', '.join(case.blind)})" if case.blind else ""
            moves = "; ".join(f"{name} {move:.1e}" for name, move in table[case.name].items())
            lines.append(f"- **{case.name}**{blind}: {moves}")
    (MODELS / "README.md").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    table_path = MODELS / "mistakes.json"
    table = json.loads(table_path.read_text()) if table_path.exists() else {}
    failed = []
    for case in golden_cases.CASES:
        if not any(part in case.name for part in args.only):
            continue
        for seed in range(1, 6):
            why, moved = make(case, seed)
            if why is None:
                break
        if why is not None:
            print(f"{case.name}: seed {seed}: {why}", flush=True)
            failed.append(case.name)
            continue
        table[case.name] = {k: float(f"{v:.2g}") for k, v in moved.items()}
        table_path.write_text(json.dumps(table, indent=1) + "\n")
        write_readme(table)
        weakest = min(moved, key=moved.get)
        print(f"{case.name}: seed {seed}, {len(moved)} mistakes, least {moved[weakest]:.1e} by {weakest}", flush=True)
    if failed:
        sys.exit("failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
