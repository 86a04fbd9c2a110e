"""The tiny models: for each architecture the configurations that make its rules visible.

A case is keyword arguments of a transformers configuration class plus what is done with the folder it is written to.
Sequence lengths cross every window, chunk and original context length. Norm epsilons are large, so that a wrong one
shows.
"""

import copy
import dataclasses
from typing import Callable

import transformers

EPS = 3e-3
VOCAB = 160


@dataclasses.dataclass
class Case:
    name: str
    row: str  # of the table of architectures
    model_class: str
    config: dict
    lengths: tuple = (61, 18)
    dtype: str = "bfloat16"
    shards: int = 1
    # config.json as such models are published, if it looks different; from the one that transformers writes.
    published: Callable[[dict], dict] | None = None
    # Changes to the folder after transformers has written it: tensors (name -> tensor) and config.
    rewrite: Callable[[dict, dict], None] | None = None
    quantization: str | None = None  # "fp8" or "mxfp4": weights are packed; the golden is from what they stand for
    # Why there is no GGUF twin: what the format, or the converter, has no place for.
    no_gguf: str = ""
    gate_up_std: float = 1.5  # of the experts, so that clamps bite
    blind: tuple = ()  # mistakes (parts of their names) that this case is not there to find

    def build_config(self, **changes):
        stem = self.model_class.removesuffix("ForCausalLM").removesuffix("LMHeadModel")
        text = "Text" if stem in ("Llama4", "Gemma3") else ""
        values = copy.deepcopy(self.config)
        values.update(changes)
        return getattr(transformers, f"{stem}{text}Config")(**values)


def common(**more):
    values = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=EPS, tie_word_embeddings=False,
                  bos_token_id=1, eos_token_id=2, pad_token_id=None)
    values.update(more)
    return values


def rope(theta=1e4, kind="default", **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


# ---- config.json as published


def old_style(config, *, type_key="rope_type", drop=()):
    """rope_theta and rope_scaling at the top level, torch_dtype, no list of layer types."""
    old = {k: v for k, v in config.items() if k not in ("rope_parameters", "dtype", "layer_types", *drop)}
    old["torch_dtype"] = config["dtype"]
    old["transformers_version"] = "4.46.0"
    parameters = dict(config.get("rope_parameters") or {})
    if parameters:
        old["rope_theta"] = parameters.pop("rope_theta")
        kind = parameters.pop("rope_type")
        partial = parameters.pop("partial_rotary_factor", None)
        if partial not in (None, 1.0):
            old["partial_rotary_factor"] = partial
        old["rope_scaling"] = None if kind == "default" else {type_key: kind, **parameters}
    return old


def old_llama(config):
    old = old_style(config)
    for key in ("head_dim", "attention_bias", "mlp_bias"):
        if old.get(key) in (False, None) or key == "head_dim":
            old.pop(key, None)
    return old


def old_gpt2(config):
    old = {k: v for k, v in config.items() if k not in ("dtype", "tie_word_embeddings")}
    old.update(n_ctx=config["n_positions"], torch_dtype=config["dtype"], transformers_version="4.46.0")
    return old


def old_phi3(config):
    old = old_style(config, type_key="type")
    scaling = old.get("rope_scaling")
    if scaling:
        # At the top level, where it wins over the one inside.
        old["original_max_position_embeddings"] = scaling.pop("original_max_position_embeddings")
    return old


def old_gemma3(config):
    new_keys = ("rope_parameters", "dtype", "layer_types", "_sliding_window_pattern")
    old = {k: v for k, v in config.items() if k not in new_keys}
    full, local = config["rope_parameters"]["full_attention"], config["rope_parameters"]["sliding_attention"]
    old.update(torch_dtype=config["dtype"], transformers_version="4.50.0", rope_theta=full["rope_theta"],
               rope_local_base_freq=local["rope_theta"], sliding_window_pattern=6)
    old["rope_scaling"] = None if full["rope_type"] == "default" else {
        "rope_type": full["rope_type"], "factor": full["factor"]}
    return old


def old_qwen3_moe(config):
    old = old_style(config)
    old["num_experts"] = old.pop("num_local_experts", None) or old["num_experts"]
    return old


def old_deepseek(config):
    old = old_style(config, type_key="type", drop=("head_dim", "qk_head_dim", "rope_interleave", "mlp_bias"))
    for key in ("n_group", "topk_group"):
        if old.get(key) is None:
            old[key] = 1
    old["ep_size"] = 1
    old["moe_layer_freq"] = 1
    old["scoring_func"] = "sigmoid" if config["model_type"] == "deepseek_v3" else "softmax"
    old.setdefault("topk_method", "noaux_tc")
    return old


def old_kimi(config):
    old = old_deepseek(config)
    old["model_type"] = "kimi_k2"
    old["auto_map"] = {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"}
    return old


def old_llama4(config):
    """The usual pattern of layers without RoPE as an empty list, the layers with experts not listed."""
    return {**old_style(config, drop=("moe_layers",)), "no_rope_layers": []}


def old_wrapped(config):
    text = config["text_config"]
    old = {k: v for k, v in config.items() if k != "dtype"}
    old["text_config"] = old_style({**text, "dtype": config["dtype"]})
    old["torch_dtype"] = config["dtype"]
    return old


def old_gpt_oss(config):
    old = old_style(config, drop=("swiglu_alpha",))
    old["layer_types"] = config["layer_types"]
    old["experts_per_token"] = old["num_experts_per_tok"]
    return old


# ---- folders as published


def gpt2_as_published(tensors, config):
    """Without the prefix, with the causal-mask buffers that old files carry."""
    import torch

    for name in list(tensors):
        tensors[name.removeprefix("transformer.")] = tensors.pop(name)
    for layer in range(config["n_layer"]):
        mask = torch.tril(torch.ones(config["n_positions"], config["n_positions"], dtype=torch.uint8))
        tensors[f"h.{layer}.attn.bias"] = mask[None, None]


def wrapped(model_type, architecture, prefix):
    """The text model inside a multimodal one, with a tensor of the vision tower that must be skipped."""

    def rewrite(tensors, config):
        import torch

        for name in list(tensors):
            head, _, tail = name.partition(".")
            renamed = prefix + tail if head == "model" else prefix.removesuffix("model.") + name
            tensors[renamed] = tensors.pop(name)
        tensors["vision_tower.vision_model.embeddings.patch_embedding.weight"] = torch.zeros(2, 3, dtype=torch.bfloat16)
        tensors["multi_modal_projector.linear_1.weight"] = torch.zeros(2, 2, dtype=torch.bfloat16)
        text = dict(config)
        dtype = text.pop("dtype")
        text.pop("architectures")
        config.clear()
        config.update(architectures=[architecture], model_type=model_type, text_config=text, dtype=dtype,
                      tie_word_embeddings=text["tie_word_embeddings"], vision_config={"hidden_size": 32},
                      transformers_version=text.pop("transformers_version"))

    return rewrite


def llama_as_published(tensors, config):
    """With the frequency buffers that old files carry."""
    import torch

    for layer in range(config["num_hidden_layers"]):
        tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.ones(8)


def fuse_experts(tensors, config):
    """All experts of a layer in one tensor, gate rows before up rows."""
    import torch

    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}.mlp.experts."
        if prefix + "0.up_proj.weight" not in tensors:
            continue
        take = lambda kind: torch.stack([tensors.pop(f"{prefix}{e}.{kind}_proj.weight")
                                         for e in range(config["num_local_experts"])])
        tensors[prefix + "gate_up_proj"] = torch.cat([take("gate"), take("up")], 1)
        tensors[prefix + "down_proj"] = take("down")


def deepseek_v3_as_published(tensors, config):
    """The selection bias in f32, and a layer for multi-token prediction behind the last one, which is not used."""
    import torch

    for name in tensors:
        if name.endswith("e_score_correction_bias"):
            tensors[name] = tensors[name].float()
    extra = f"model.layers.{config['num_hidden_layers']}."
    tensors[extra + "eh_proj.weight"] = torch.zeros(4, 8, dtype=torch.bfloat16)
    tensors[extra + "self_attn.q_a_proj.weight"] = torch.zeros(4, 8, dtype=torch.bfloat16)
    config["num_nextn_predict_layers"] = 1


MLA = dict(kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=24, num_key_value_heads=4)


def yarn(factor=4.0, original=32, **more):
    return rope(100.0, "yarn", factor=factor, original_max_position_embeddings=original, **more)


def deepseek_v2(**more):
    return common(**{**MLA, **dict(
        num_hidden_layers=2, max_position_embeddings=128, moe_intermediate_size=32, n_routed_experts=8,
        n_shared_experts=2,
        num_experts_per_tok=2, first_k_dense_replace=1, routed_scaling_factor=1.0, norm_topk_prob=False), **more})


def deepseek_v3(**more):
    return common(**{**MLA, **dict(
        num_hidden_layers=2, max_position_embeddings=128, moe_intermediate_size=32, n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=3, first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True, n_group=4,
        topk_group=2, q_lora_rank=32, num_mtp_layers=0), **more})


CASES = [
    # GPT-2
    Case("gpt2-tied", "GPT-2", "GPT2LMHeadModel",
         dict(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=96, layer_norm_epsilon=EPS,
              bos_token_id=1, eos_token_id=2), published=old_gpt2),
    Case("gpt2-untied-f32", "GPT-2", "GPT2LMHeadModel",
         dict(vocab_size=VOCAB, n_embd=48, n_layer=2, n_head=3, n_positions=64, n_inner=80, layer_norm_epsilon=EPS,
              tie_word_embeddings=False, bos_token_id=1, eos_token_id=2), dtype="float32",
         no_gguf="the converter asks for n_ctx"),
    Case("gpt2-published", "GPT-2", "GPT2LMHeadModel",
         dict(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=2, n_positions=64, layer_norm_epsilon=EPS,
              scale_attn_by_inverse_layer_idx=True, bos_token_id=1, eos_token_id=2), rewrite=gpt2_as_published,
         no_gguf="no key for scale_attn_by_inverse_layer_idx"),
    # Llama
    Case("llama-mha", "Llama", "LlamaForCausalLM",
         common(num_hidden_layers=2, num_key_value_heads=4, rope_parameters=rope()), published=old_llama,
         rewrite=llama_as_published),
    Case("llama-gqa", "Llama", "LlamaForCausalLM", common(num_hidden_layers=2, rope_parameters=rope(5e5)),
         published=old_llama, shards=2),
    Case("llama-mqa-head32-tied", "Llama", "LlamaForCausalLM",
         common(num_hidden_layers=2, num_key_value_heads=1, head_dim=32, tie_word_embeddings=True,
                rope_parameters=rope(1e3))),
    Case("llama-biases-f16", "Llama", "LlamaForCausalLM",
         common(num_hidden_layers=2, attention_bias=True, mlp_bias=True, rope_parameters=rope()), dtype="float16"),
    Case("llama-linear", "Llama", "LlamaForCausalLM",
         common(num_hidden_layers=2, rope_parameters=rope(1e4, "linear", factor=4.0)), published=old_llama),
    Case("llama-dynamic", "Llama", "LlamaForCausalLM",
         common(num_hidden_layers=2, max_position_embeddings=32, rope_parameters=rope(1e4, "dynamic", factor=2.0)),
         lengths=(61, 47, 20), published=lambda c: old_style(c, type_key="type"),
         no_gguf="no key for dynamic scaling"),
    Case("llama-llama3", "Llama", "LlamaForCausalLM",
         common(num_hidden_layers=2, tie_word_embeddings=True,
                rope_parameters=rope(1e4, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=64)), lengths=(83, 18), published=old_llama),
    Case("llama-llama3-factor32", "Llama", "LlamaForCausalLM",
         common(num_hidden_layers=2, max_position_embeddings=4096, head_dim=32,
                rope_parameters=rope(1e3, "llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=64)), lengths=(83, 18)),
    Case("llama-yarn", "Llama", "LlamaForCausalLM",
         common(num_hidden_layers=2, max_position_embeddings=128, head_dim=32,
                rope_parameters=rope(1e3, "yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=2.0,
                                     beta_slow=0.5)),
         published=old_style),
    Case("llama-longrope", "Llama", "LlamaForCausalLM",
         common(num_hidden_layers=2, max_position_embeddings=128, original_max_position_embeddings=32,
                rope_parameters=rope(1e4, "longrope", original_max_position_embeddings=32,
                                     short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
                                     long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0])),
         lengths=(61, 33, 32), no_gguf="the converter writes no longrope factors for llama"),
    Case("smollm2", "SmolLM2", "LlamaForCausalLM",
         common(hidden_size=48, intermediate_size=96, num_attention_heads=3, num_key_value_heads=1,
                tie_word_embeddings=True, rope_parameters=rope(1e5)),
         published=lambda c: {**old_llama(c), "rope_interleaved": False}),
    Case("smollm2-9-heads", "SmolLM2", "LlamaForCausalLM",
         common(hidden_size=72, num_hidden_layers=2, num_attention_heads=9, num_key_value_heads=3,
                tie_word_embeddings=True, rope_parameters=rope(1e5)), dtype="float16"),
    # Mistral, Mixtral
    Case("mistral-window", "Mistral", "MistralForCausalLM",
         common(num_hidden_layers=2, sliding_window=16, rope_parameters=rope()), published=old_style,
         no_gguf="no key for the window"),
    Case("mistral-head32", "Mistral", "MistralForCausalLM",
         common(num_hidden_layers=2, head_dim=32, sliding_window=None, rope_parameters=rope(1e6)), published=old_style),
    Case("mixtral-top2", "Mixtral", "MixtralForCausalLM",
         common(num_hidden_layers=2, intermediate_size=32, num_local_experts=6, num_experts_per_tok=2,
                rope_parameters=rope(1e6)), shards=3, published=old_style),
    Case("mixtral-window-top3", "Mixtral", "MixtralForCausalLM",
         common(num_hidden_layers=2, intermediate_size=32, num_local_experts=6, num_experts_per_tok=3,
                sliding_window=12, head_dim=32, rope_parameters=rope(1e4)), no_gguf="no key for the window"),
    # Qwen
    Case("qwen2-window", "Qwen2", "Qwen2ForCausalLM",
         common(num_hidden_layers=2, use_sliding_window=True, max_window_layers=1, sliding_window=16,
                rope_parameters=rope(1e6)), published=old_style, no_gguf="no key for the window"),
    Case("qwen2-tied", "Qwen2", "Qwen2ForCausalLM",
         common(num_hidden_layers=2, num_key_value_heads=4, use_sliding_window=False, sliding_window=8,
                max_window_layers=0, tie_word_embeddings=True, rope_parameters=rope(1e6)), published=old_style),
    Case("qwen3-tied", "Qwen3", "Qwen3ForCausalLM",
         common(num_hidden_layers=2, head_dim=32, tie_word_embeddings=True, rope_parameters=rope(1e6)),
         published=old_style),
    Case("qwen3-untied-window", "Qwen3", "Qwen3ForCausalLM",
         common(num_hidden_layers=2, head_dim=16, use_sliding_window=True, max_window_layers=1, sliding_window=10,
                rope_parameters=rope(1e6)), published=old_style, no_gguf="no key for the window"),
    Case("qwen3-moe", "Qwen3-MoE", "Qwen3MoeForCausalLM",
         common(num_hidden_layers=2, head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                norm_topk_prob=True, rope_parameters=rope(1e6)), published=old_qwen3_moe),
    Case("qwen3-moe-normed", "Qwen3-MoE", "Qwen3MoeForCausalLM",
         common(head_dim=32, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True,
                mlp_only_layers=[1], rope_parameters=rope(1e6)), published=old_qwen3_moe,
         no_gguf="the converter cannot map dense layers"),
    Case("qwen3-moe-raw", "Qwen3-MoE", "Qwen3MoeForCausalLM",
         common(num_hidden_layers=4, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                norm_topk_prob=False, decoder_sparse_step=2, use_sliding_window=True, sliding_window=12,
                max_window_layers=2, rope_parameters=rope(1e4)), rewrite=fuse_experts,
         no_gguf="no key for norm_topk_prob and the window"),
    # Gemma
    Case("gemma2", "Gemma 2", "Gemma2ForCausalLM",
         common(num_hidden_layers=2, head_dim=32, query_pre_attn_scalar=24, sliding_window=16,
                attn_logit_softcapping=5.0, final_logit_softcapping=3.0, tie_word_embeddings=True,
                rope_parameters=rope()), published=old_style, no_gguf="no key for query_pre_attn_scalar"),
    Case("gemma2-mqa", "Gemma 2", "Gemma2ForCausalLM",
         common(num_hidden_layers=2, head_dim=16, num_key_value_heads=1, query_pre_attn_scalar=16, sliding_window=7,
                attn_logit_softcapping=8.0, final_logit_softcapping=6.0, tie_word_embeddings=True,
                rope_parameters=rope())),
    Case("gemma3", "Gemma 3", "Gemma3ForCausalLM",
         common(hidden_size=48, intermediate_size=64, num_hidden_layers=7, head_dim=16, query_pre_attn_scalar=16,
                sliding_window=16, final_logit_softcapping=4.0, tie_word_embeddings=True,
                rope_parameters={"full_attention": rope(1e3, "linear", factor=4.0), "sliding_attention": rope(100.0)}),
         published=old_gemma3),
    Case("gemma3-wrapped", "Gemma 3", "Gemma3ForCausalLM",
         common(hidden_size=48, intermediate_size=64, num_hidden_layers=3, head_dim=32, query_pre_attn_scalar=24,
                sliding_window=9, tie_word_embeddings=True,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                rope_parameters={"full_attention": rope(1e6), "sliding_attention": rope(1e4)}),
         rewrite=wrapped("gemma3", "Gemma3ForConditionalGeneration", "language_model.model."),
         blind=("activation gelu",), no_gguf="no key for query_pre_attn_scalar and the list of layers"),
    # OLMo 2
    Case("olmo2-mha", "OLMo 2", "Olmo2ForCausalLM",
         common(num_hidden_layers=2, num_key_value_heads=4, rope_parameters=rope(5e5)), published=old_style),
    Case("olmo2-gqa", "OLMo 2", "Olmo2ForCausalLM",
         common(num_hidden_layers=2, rope_parameters=rope(5e5), tie_word_embeddings=True), shards=2,
         published=old_style),
    # gpt-oss
    Case("gpt-oss", "gpt-oss", "GptOssForCausalLM",
         common(num_hidden_layers=2, intermediate_size=48, head_dim=16, sliding_window=16, num_local_experts=4,
                num_experts_per_tok=2, max_position_embeddings=128, swiglu_limit=1.5, attention_bias=True,
                rope_parameters=rope(1e3, "yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0,
                                     beta_slow=0.5, truncate=False)), published=old_gpt_oss,
         no_gguf="no key for swiglu_limit"),
    Case("gpt-oss-mxfp4", "gpt-oss", "GptOssForCausalLM",
         common(num_hidden_layers=2, intermediate_size=64, head_dim=16, sliding_window=9, num_local_experts=6,
                num_experts_per_tok=3, max_position_embeddings=128, swiglu_limit=7.0, attention_bias=True,
                rope_parameters=rope(1e3, "yarn", factor=32.0, original_max_position_embeddings=32, beta_fast=4.0,
                                     beta_slow=0.5, truncate=False)), quantization="mxfp4", gate_up_std=5.0,
         published=old_gpt_oss),
    # DeepSeek
    Case("deepseek-v2-lite", "DeepSeek-V2", "DeepseekV2ForCausalLM",
         deepseek_v2(q_lora_rank=None, topk_method="greedy",
                     rope_parameters=yarn(beta_fast=1.2, beta_slow=0.25, mscale=0.707, mscale_all_dim=0.707)),
         published=old_deepseek),
    Case("deepseek-v2-lite-biases", "DeepSeek-V2", "DeepseekV2ForCausalLM",
         deepseek_v2(q_lora_rank=None, topk_method="greedy", n_routed_experts=4, n_shared_experts=1,
                     norm_topk_prob=True, attention_bias=True, tie_word_embeddings=True, rope_parameters=rope(1e4)),
         published=old_deepseek, no_gguf="no tensor for the biases"),
    Case("deepseek-v2", "DeepSeek-V2", "DeepseekV2ForCausalLM",
         deepseek_v2(q_lora_rank=32, topk_method="group_limited_greedy", n_group=4, topk_group=2,
                     num_experts_per_tok=3, routed_scaling_factor=4.0,
                     rope_parameters=yarn(factor=40.0, beta_fast=1.2, beta_slow=0.25, mscale=0.707,
                                          mscale_all_dim=0.707)),
         published=old_deepseek),
    Case("deepseek-v3", "DeepSeek-V3", "DeepseekV3ForCausalLM",
         deepseek_v3(rope_parameters=yarn(factor=40.0, beta_fast=1.2, beta_slow=0.25, mscale=1.0, mscale_all_dim=1.0)),
         rewrite=deepseek_v3_as_published, published=old_deepseek),
    Case("deepseek-v3-no-q-lora", "DeepSeek-V3", "DeepseekV3ForCausalLM",
         deepseek_v3(q_lora_rank=None, n_group=2, topk_group=1, num_experts_per_tok=2,
                     norm_topk_prob=False, attention_bias=True, rope_interleave=False,
                     rope_parameters=yarn(beta_fast=1.2, beta_slow=0.25, mscale=1.0, mscale_all_dim=0.5)),
         rewrite=deepseek_v3_as_published, no_gguf="no key for mscale and rope_interleave"),
    Case("deepseek-v3-fp8", "DeepSeek-V3", "DeepseekV3ForCausalLM",
         deepseek_v3(intermediate_size=160, v_head_dim=40, qk_nope_head_dim=24, attention_bias=True,
                     rope_parameters=yarn(factor=40.0, mscale=1.0, mscale_all_dim=1.0)),
         rewrite=deepseek_v3_as_published, quantization="fp8", published=old_deepseek,
         no_gguf="the converter rounds fp8 to bf16"),
    Case("kimi-k2", "Kimi K2", "DeepseekV3ForCausalLM",
         deepseek_v3(n_group=1, topk_group=1, routed_scaling_factor=2.827, 
                     rope_parameters=rope(1e3, "yarn", factor=32.0, original_max_position_embeddings=32, beta_fast=1.0,
                                          beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)),
         rewrite=deepseek_v3_as_published, published=old_kimi),
    Case("kimi-k2-fp8", "Kimi K2", "DeepseekV3ForCausalLM",
         deepseek_v3(n_group=1, topk_group=1, num_experts_per_tok=2, routed_scaling_factor=2.827,
                     rope_parameters=rope(1e3, "yarn", factor=32.0, original_max_position_embeddings=32, beta_fast=1.0,
                                          beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)),
         rewrite=deepseek_v3_as_published, quantization="fp8", published=old_kimi,
         no_gguf="the converter rounds fp8 to bf16"),
    # Llama 4
    Case("llama4-scout", "Llama 4", "Llama4ForCausalLM",
         common(num_hidden_layers=4, head_dim=16, intermediate_size=32, intermediate_size_mlp=80, num_local_experts=4,
                num_experts_per_tok=1, interleave_moe_layer_step=1, use_qk_norm=True, attention_chunk_size=16,
                floor_scale=8, attn_scale=0.4,
                rope_parameters=rope(1e4, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=1.0,
                                     original_max_position_embeddings=50)), published=old_llama4,
         no_gguf="no key for the chunk and the temperature"),
    Case("llama4-long-chunks", "Llama 4", "Llama4ForCausalLM",
         common(num_hidden_layers=4, head_dim=16, intermediate_size=32, intermediate_size_mlp=80, num_local_experts=4,
                num_experts_per_tok=1, interleave_moe_layer_step=2, use_qk_norm=True, rope_parameters=rope(5e5)),
         blind=("chunk", "temperature", "attn_scale")),
    Case("llama4-maverick", "Llama 4", "Llama4ForCausalLM",
         common(num_hidden_layers=3, head_dim=32, intermediate_size=32, intermediate_size_mlp=80, num_local_experts=4,
                num_experts_per_tok=2, interleave_moe_layer_step=2, use_qk_norm=False, attention_chunk_size=11,
                floor_scale=7, attn_scale=0.4, no_rope_layers=[1, 0, 1], rope_parameters=rope(5e5)),
         rewrite=wrapped("llama4", "Llama4ForConditionalGeneration", "language_model.model."), published=old_wrapped,
         no_gguf="no key for the chunk and the temperature"),
    # SmolLM3, Phi-3
    Case("smollm3", "SmolLM3", "SmolLM3ForCausalLM",
         common(num_hidden_layers=4, tie_word_embeddings=True, rope_parameters=rope(5e6)), published=old_style),
    Case("smollm3-window", "SmolLM3", "SmolLM3ForCausalLM",
         common(num_hidden_layers=3, no_rope_layers=[1, 0, 1], use_sliding_window=True, sliding_window=14,
                attention_bias=True, mlp_bias=True, rope_parameters=rope(2e6)), published=old_style,
         no_gguf="no key for the list of layers and the window"),
    Case("phi3-window", "Phi-3", "Phi3ForCausalLM",
         common(num_hidden_layers=2, num_key_value_heads=4, sliding_window=16, rope_parameters=rope()),
         published=old_phi3),
    Case("phi3-longrope", "Phi-3", "Phi3ForCausalLM",
         common(num_hidden_layers=2, max_position_embeddings=128, original_max_position_embeddings=32,
                sliding_window=None,
                rope_parameters=rope(1e4, "longrope", original_max_position_embeddings=32,
                                     short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
                                     long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0])),
         lengths=(61, 33, 32), published=old_phi3),
    Case("phi3-partial", "Phi-3", "Phi3ForCausalLM",
         common(num_hidden_layers=2, sliding_window=None,
                rope_parameters=rope(1e4, partial_rotary_factor=0.75)), published=old_phi3),
]
