#!/usr/bin/env python3
"""Makes the SmolLM2 goldens: logits and greedy continuations of an independent engine on the very same weights.

The GGUF's weights are dequantised (gguf-py), q and k rows are put back into Hugging Face's order, and a transformers
LlamaForCausalLM computes in float32 with eager attention. Token ids come from Hugging Face `tokenizers` and jinja2, fed
with the GGUF's vocabulary and template. Nothing of Sluice takes part.

    python3 -m venv V && V/bin/pip install torch==2.12.1 transformers==5.24.0 gguf tokenizers jinja2
    V/bin/python tests/goldens/make_smollm2.py SmolLM2-135M-Instruct.Q4_1.gguf

Reads  smollm2_prompts.json (fixed before the first measurement, never exchanged) and perplexity.txt.
Writes smollm2_greedy.json   per prompt: ids, 64 greedy tokens (end tokens ignored), the runner-up at each step and the
                             top-2 margin relative to the row's max |logit|
       smollm2_logits.json   per checked row: prompt, position, max |logit|, the 32 largest logits; where the samples are
       smollm2_logits.bin    float32 little-endian: every 97th logit of each checked row, then two full rows
       smollm2_perplexity.json  ids of the text (4,096 tokens) and the mean negative log-likelihood in float32
"""

import argparse
import json
import pathlib
import sys

import gguf
import jinja2.sandbox
import numpy as np
import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).parent
NUM_TOKENS = 64
SAMPLE_STRIDE = 97
LOGITS_PROMPTS = ["prose-1", "code-2", "list-4", "numbers-4", "non-latin-2", "non-latin-6", "chat-2", "long-chat-1"]
MAX_ROWS = 40  # checked rows per prompt, spread evenly, the last one included
FULL_ROWS = [("prose-1", -1), ("long-chat-1", -1)]
PERPLEXITY_TOKENS = 4096


def field(reader, key):
    return reader.get_field(key).contents()


def load_tokenizer(reader):
    """Byte-level BPE with single digits, from the GGUF's own lists."""
    if field(reader, "tokenizer.ggml.model") != "gpt2" or field(reader, "tokenizer.ggml.pre") != "smollm":
        sys.exit("the file's tokenizer is not gpt2/smollm")
    tokens = field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ", 1)) for m in field(reader, "tokenizer.ggml.merges")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    types = field(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(t, normalized=False, special=True) for t, k in zip(tokens, types) if k in (3, 4)])
    return tokenizer


def render_chat(reader, messages):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(field(reader, "tokenizer.chat_template"))
    return template.render(messages=messages, add_generation_prompt=True)


def unpermute(weight, num_heads):
    """Rows of a head from interleaved pairs (GGUF) to two halves (Hugging Face)."""
    out, width = weight.shape
    return weight.reshape(num_heads, out // num_heads // 2, 2, width).swapaxes(1, 2).reshape(out, width)


def load_model(reader):
    heads, kv_heads = field(reader, "llama.attention.head_count"), field(reader, "llama.attention.head_count_kv")
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    layers = field(reader, "llama.block_count")
    config = transformers.LlamaConfig(
        vocab_size=tensors["token_embd.weight"].shape[0], hidden_size=field(reader, "llama.embedding_length"),
        intermediate_size=field(reader, "llama.feed_forward_length"), num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=field(reader, "llama.context_length"),
        rms_norm_eps=field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field(reader, "llama.rope.freq_base")},
        tie_word_embeddings="output.weight" not in tensors, attention_bias=False, mlp_bias=False, hidden_act="silu")
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    state = {"model.embed_tokens.weight": tensors["token_embd.weight"], "model.norm.weight": tensors["output_norm.weight"]}
    state["lm_head.weight"] = tensors.get("output.weight", tensors["token_embd.weight"])
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    for layer in range(layers):
        for ours, theirs in names.items():
            weight = tensors[f"blk.{layer}.{ours}.weight"]
            if ours == "attn_q":
                weight = unpermute(weight, heads)
            if ours == "attn_k":
                weight = unpermute(weight, kv_heads)
            state[f"model.layers.{layer}.{theirs}.weight"] = weight
    model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in state.items()}, strict=True)
    return model


@torch.no_grad()
def greedy(model, ids):
    tokens, second, margins = [], [], []
    out = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
    for _ in range(NUM_TOKENS):
        logits = out.logits[0, -1]
        top = torch.topk(logits, 2)
        tokens.append(int(top.indices[0]))
        second.append(int(top.indices[1]))
        margins.append(float((top.values[0] - top.values[1]) / logits.abs().max()))
        out = model(torch.tensor([[tokens[-1]]]), past_key_values=out.past_key_values, use_cache=True)
    return {"tokens": tokens, "runner_up": second, "margin": [float(f"{m:.4g}") for m in margins]}


@torch.no_grad()
def logits_goldens(model, prompts):
    rows, samples, full, full_samples = [], [], [], []
    for prompt in prompts:
        ids = prompt["ids"]
        positions = sorted(set(np.linspace(0, len(ids) - 1, min(MAX_ROWS, len(ids))).round().astype(int).tolist()))
        logits = model(torch.tensor([ids])).logits[0]
        for position in positions:
            row = logits[position]
            top = torch.topk(row, 32)
            rows.append({"prompt": prompt["id"], "position": position, "max_abs": float(row.abs().max()),
                         "top_ids": top.indices.tolist(), "top_logits": [float(f"{v:.8g}") for v in top.values]})
            samples.append(row[::SAMPLE_STRIDE].numpy())
        for name, position in FULL_ROWS:
            if name == prompt["id"]:
                full.append({"prompt": name, "position": len(ids) + position})
                full_samples.append(logits[position].numpy())
    return rows, full, np.concatenate(samples + full_samples)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=["greedy", "logits", "perplexity"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    reader = gguf.GGUFReader(args.model)
    tokenizer, model = load_tokenizer(reader), load_model(reader)
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__,
                 "tokenizers": tokenizers.__version__}

    prompts = json.loads((HERE / "smollm2_prompts.json").read_text())["prompts"]
    for prompt in prompts:
        text = prompt["text"] if "text" in prompt else render_chat(reader, prompt["messages"])
        prompt["ids"] = tokenizer.encode(text, add_special_tokens=False).ids

    if args.only in (None, "logits"):
        chosen = [p for name in LOGITS_PROMPTS for p in prompts if p["id"] == name]
        rows, full, samples = logits_goldens(model, chosen)
        samples.astype("<f4").tofile(HERE / "smollm2_logits.bin")
        (HERE / "smollm2_logits.json").write_text(json.dumps(
            {"made_with": made_with, "sample_stride": SAMPLE_STRIDE, "vocab_size": model.config.vocab_size,
             "prompts": [{"id": p["id"], "ids": p["ids"]} for p in chosen], "rows": rows, "full_rows": full},
            separators=(",", ":")) + "\n")
        print(f"logits: {len(rows)} rows", flush=True)

    if args.only in (None, "perplexity"):
        text = (HERE / "perplexity.txt").read_text()
        ids = tokenizer.encode(text, add_special_tokens=False).ids[:PERPLEXITY_TOKENS]
        if len(ids) < PERPLEXITY_TOKENS:
            sys.exit(f"perplexity.txt has {len(ids)} tokens, expected at least {PERPLEXITY_TOKENS}")
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1].double()
        nll = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]))
        (HERE / "smollm2_perplexity.json").write_text(json.dumps(
            {"made_with": made_with, "mean_nll": float(nll), "ids": ids}, separators=(",", ":")) + "\n")
        print(f"perplexity: {float(nll.exp()):.6f}", flush=True)

    if args.only in (None, "greedy"):
        results = []
        for prompt in prompts:
            result = greedy(model, prompt["ids"])
            results.append({"id": prompt["id"], "ids": prompt["ids"], **result})
            print(prompt["id"], len(prompt["ids"]), min(result["margin"]), repr(tokenizer.decode(result["tokens"])[:60]),
                  flush=True)
        (HERE / "smollm2_greedy.json").write_text(
            json.dumps({"made_with": made_with, "prompts": results}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
