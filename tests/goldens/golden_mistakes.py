"""Mistakes that an implementation could make. Each must move a golden's logits, or the golden would not find it."""

import contextlib
import dataclasses
import sys
import types
from typing import Callable
from unittest import mock

import torch
import torch.nn.functional as F


@dataclasses.dataclass
class Mistake:
    name: str
    config: dict = dataclasses.field(default_factory=dict)  # changed arguments of the configuration
    state: Callable[[dict], None] | None = None  # changes weights in place
    model: Callable[[torch.nn.Module], None] | None = None  # changes the built model
    patch: Callable | None = None  # context manager around the forward pass, given the model


def modeling(model):
    return sys.modules[type(model).__module__]


@contextlib.contextmanager
def patched(model, name, function):
    with mock.patch.object(modeling(model), name, function):
        yield


def modules(model, ending):
    return [m for name, m in model.named_modules() if name.endswith(ending)]


def replace_forward(ending, function):
    """function(module, original forward) -> new forward"""

    def edit(model):
        found = modules(model, ending)
        assert found, ending
        for module in found:
            module.forward = function(module, module.forward)

    return edit


IDENTITY = lambda module, forward: lambda x, *a, **k: x


def edit_parameters(ending, function):
    def edit(state):
        found = [name for name in state if name.endswith(ending)]
        assert found, ending
        for name in found:
            state[name] = function(state[name])

    return edit


# ---- rope


def rope_function(model):
    return "apply_rotary_emb" if hasattr(modeling(model), "apply_rotary_emb") else "apply_rotary_pos_emb"


def swap_layout(model):
    """Half-split pairs read as interleaved ones, or the other way round."""
    name = rope_function(model)
    original = getattr(modeling(model), name)

    def swapped(q, k, *args, **kwargs):
        width = args[0].shape[-1] * (2 if name == "apply_rotary_emb" or original.__module__.endswith("gpt_oss") else 1)
        half = torch.arange(width).view(2, -1)
        order = half.T.reshape(-1) if name == "apply_rotary_pos_emb" else torch.arange(width).view(-1, 2).T.reshape(-1)
        permute = lambda x: torch.cat([x[..., :width][..., order], x[..., width:]], dim=-1)
        return original(permute(q), permute(k), *args, **kwargs)

    return patched(model, name, swapped)


def no_rope(model):
    return patched(model, rope_function(model), lambda q, k, *a, **kw: (q, k))


def norm_after_rope(model):
    """Per-head QK-norm after the rotation instead of before it."""
    kept = {}
    for kind in ("q_norm", "k_norm"):
        for module in modules(model, kind):
            original = module.forward
            module.forward = lambda x, original=original, kind=kind: (kept.__setitem__(kind, original), x)[1]
    name = rope_function(model)
    rotate = getattr(modeling(model), name)

    def rotated(q, k, *args, **kwargs):
        q, k = rotate(q, k, *args, **kwargs)
        return kept["q_norm"](q), kept["k_norm"](k)

    return patched(model, name, rotated)


# ---- attention


def cyclic_groups(model):
    """Query head h reads KV head h mod n instead of h / (heads per KV head)."""
    return patched(model, "repeat_kv", lambda x, n: x.repeat(1, n, 1, 1))


def scale_attention(factor):
    def edit(model):
        found = [m for m in model.modules() if isinstance(getattr(m, "scaling", None), float)]
        assert found
        for module in found:
            module.scaling *= factor

    return edit


# ---- experts


@dataclasses.dataclass
class Routing:
    """The rule of MoeRouting in engine/base/layer_types.h, written down once more."""

    k: int
    score: str = "softmax"  # "softmax", "topk" (softmax over the chosen logits), "sigmoid"
    groups: int = 1
    kept: int = 1
    group_score: str = "max"  # or "top2"
    renormalize: bool = False
    scale: float = 1.0
    bias_in_weights: bool = False
    masked: float = float("-inf")

    def choice(self, logits, bias):
        scores = {"softmax": logits.softmax(-1), "topk": logits, "sigmoid": logits.sigmoid()}[self.score]
        choice = scores if bias is None else scores + bias
        if self.groups > 1:
            grouped = choice.view(len(logits), self.groups, -1)
            if self.group_score == "max":
                group = grouped.max(-1).values
            else:
                group = grouped.topk(2, -1).values.sum(-1)
            keep = torch.zeros_like(group).scatter_(1, group.topk(self.kept, -1).indices, 1).bool()
            choice = grouped.masked_fill(~keep[:, :, None], self.masked).view(choice.shape)
        else:
            group = None
        return scores, choice, group

    def __call__(self, logits, bias=None):
        scores, choice, _ = self.choice(logits, bias)
        index = choice.topk(self.k, -1).indices
        weights = (choice if self.bias_in_weights else scores).gather(1, index)
        if self.score == "topk":
            weights = weights.softmax(-1)
        if self.renormalize:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * self.scale, index

    def margin(self, logits, bias=None):
        """Per row the distance by which the last expert, or the last group, was chosen."""
        _, choice, group = self.choice(logits, bias)
        ordered = choice.sort(-1, descending=True).values
        gap = ordered[:, self.k - 1] - ordered[:, self.k]
        if group is not None:
            ordered = group.sort(-1, descending=True).values
            gap = torch.minimum(gap, ordered[:, self.kept - 1] - ordered[:, self.kept])
        return gap


def routing_of(config):
    kind = config.model_type
    if kind == "mixtral":
        return Routing(config.num_experts_per_tok, renormalize=True)
    if kind == "qwen3_moe":
        return Routing(config.num_experts_per_tok, renormalize=config.norm_topk_prob)
    if kind == "gpt_oss":
        return Routing(config.num_experts_per_tok, "topk")
    if kind == "llama4_text":
        return Routing(config.num_experts_per_tok, "topk")
    if kind == "deepseek_v2":
        grouped = config.topk_method == "group_limited_greedy"
        return Routing(config.num_experts_per_tok, "softmax", config.n_group if grouped else 1,
                       config.topk_group if grouped else 1, scale=config.routed_scaling_factor)
    if kind == "deepseek_v3":
        return Routing(config.num_experts_per_tok, "sigmoid", config.n_group, config.topk_group, "top2",
                       config.norm_topk_prob, config.routed_scaling_factor)
    return None


def routers(model):
    return [m for m in model.modules() if type(m).__name__.endswith("Router")]


def route_by(**changes):
    def edit(model):
        rule = dataclasses.replace(routing_of(model.config), **changes)
        for module in routers(model):
            bias = getattr(module, "e_score_correction_bias", None)
            original = module.forward

            def forward(x, original=original, bias=bias):
                logits = original(x)[0]
                weights, index = rule(logits.float(), bias)
                return logits, weights, index

            module.forward = forward

    return edit


def llama4_weight_on_output(model):
    """expert(x) * w instead of expert(w * x)."""
    for module in modules(model, "feed_forward"):
        if not hasattr(module, "experts"):
            continue

        def forward(self, x):
            x = x.reshape(-1, self.hidden_dim)
            scores, logits = self.router(x)
            count = scores.shape[1]
            out = self.experts(x.repeat(count, 1)) * scores.T.reshape(-1, 1)
            return self.shared_expert(x) + out.reshape(count, -1, out.shape[-1]).sum(0), logits

        module.forward = types.MethodType(forward, module)


def llama4_scores(function):
    """function(chosen logits) -> weights, instead of their sigmoid."""

    def edit(model):
        for module in routers(model):
            linear = module

            def forward(x, linear=linear):
                logits = F.linear(x, linear.weight)
                value, index = logits.topk(linear.top_k, 1)
                return torch.zeros_like(logits).scatter_(1, index, function(value)), logits

            module.forward = forward

    return edit


def halves(x, dim):
    a, b = x.chunk(2, dim)
    return torch.cat([b, a], dim)


def interleaved(x):
    """[gate | up] read as gate, up, gate, up, ... along the last axis."""
    return torch.cat([x[..., ::2], x[..., 1::2]], -1)


# ---- the list


def rope_mistakes(config, key, label):
    def with_rope(**changes):
        parameters = {k: dict(v) if isinstance(v, dict) else v for k, v in config["rope_parameters"].items()}
        target = parameters[key] if key else parameters
        target.update(changes)
        for name in [n for n, value in target.items() if value is None]:
            del target[name]
        return {"rope_parameters": parameters}

    parameters = config["rope_parameters"][key] if key else config["rope_parameters"]
    kind = parameters["rope_type"]
    yield Mistake(f"rope theta{label} * 2", with_rope(rope_theta=parameters["rope_theta"] * 2))
    if kind != "default":
        plain = {k: None for k in parameters if k not in ("rope_type", "rope_theta", "partial_rotary_factor")}
        yield Mistake(f"rope scaling{label} ignored", with_rope(rope_type="default", **plain))
    for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "beta_fast",
                 "beta_slow"):
        if name in parameters and kind != "longrope":
            # Betas of 1 land on the same rounded ramp; equal frequency factors leave no pair to blend.
            if "beta" in name and parameters[name] == 1.0:
                continue
            if "freq" in name and parameters["low_freq_factor"] == parameters["high_freq_factor"]:
                continue
            value = int(parameters[name] * 2) if name.startswith("original") else parameters[name] * 1.5
            times = 2 if name.startswith("original") else 1.5
            yield Mistake(f"rope {name}{label} * {times}", with_rope(**{name: value}))
    if kind == "yarn":
        if parameters.get("mscale") != parameters.get("mscale_all_dim") or "mscale" not in parameters:
            yield Mistake("yarn attention factor 1", with_rope(attention_factor=1.0))
        if "truncate" in parameters:
            yield Mistake("yarn ramp truncated", with_rope(truncate=True))
        elif parameters.get("beta_fast") != parameters.get("beta_slow"):
            yield Mistake("yarn ramp not truncated", with_rope(truncate=False))
        if "beta_fast" in parameters:
            yield Mistake("yarn betas ignored", with_rope(beta_fast=None, beta_slow=None))
    if kind == "longrope":
        yield Mistake("longrope attention factor 1", with_rope(attention_factor=1.0))
        yield Mistake("longrope always short", with_rope(long_factor=parameters["short_factor"]))
        yield Mistake("longrope always long", with_rope(short_factor=parameters["long_factor"]))
    if kind == "dynamic":
        yield Mistake("dynamic base for max_position", patch=lambda model: mock.patch.object(
            model.model.rotary_emb, "max_seq_len_cached", 1 << 20))
    if parameters.get("partial_rotary_factor", 1.0) != 1.0:
        yield Mistake("all dimensions rotate", with_rope(partial_rotary_factor=1.0))


def attention_mistakes(case, config, built):
    gpt2 = built.model_type == "gpt2"
    yield Mistake("attention scale * 0.9", model=scale_attention(0.9))
    if not gpt2:
        yield Mistake("rope layout swapped",
                      **({"config": {"rope_interleave": not built.rope_interleave}} if built.model_type == "deepseek_v3"
                         else {"patch": swap_layout}))
        if built.model_type != "deepseek_v3":
            yield Mistake("no rope", patch=no_rope)
        keys = [("full_attention", " (global)"), ("sliding_attention", " (local)")] if "full_attention" in \
            config["rope_parameters"] else [(None, "")]
        for key, label in keys:
            yield from rope_mistakes(config, key, label)
        if 1 < built.num_key_value_heads < built.num_attention_heads:
            yield Mistake("query heads grouped cyclically", patch=cyclic_groups)
    window = getattr(built, "sliding_window", None)
    if window and "sliding_attention" in (getattr(built, "layer_types", None) or ["sliding_attention"]):
        for change in (-1, 1):
            yield Mistake(f"window {change:+}", {"sliding_window": window + change})
        yield Mistake("no window", {"sliding_window": 1024})
        kinds = getattr(built, "layer_types", None)
        if kinds and len(set(kinds)) == 2:
            swap = {"sliding_attention": "full_attention", "full_attention": "sliding_attention"}
            yield Mistake("window on the other layers", {"layer_types": [swap[k] for k in kinds]})
            yield Mistake("window on all layers", {"layer_types": ["sliding_attention"] * len(kinds)})
    if built.model_type == "qwen2" and not built.use_sliding_window:
        yield Mistake("use_sliding_window ignored", {"use_sliding_window": True})
    if getattr(built, "attention_chunk_size", None):
        for change in (-1, 1):
            yield Mistake(f"chunk {change:+}", {"attention_chunk_size": built.attention_chunk_size + change})
        yield Mistake("no chunks", {"attention_chunk_size": 1024})
        yield Mistake("chunks on all layers", {"layer_types": ["chunked_attention"] * built.num_hidden_layers})
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(built, name, None):
            yield Mistake(f"no {name}", {name: None})
            yield Mistake(f"{name} * 1.1", {name: getattr(built, name) * 1.1})
    if getattr(built, "no_rope_layers", None) and 0 in built.no_rope_layers:
        kinds = {"layer_types": built.layer_types}
        yield Mistake("rope on all layers", {"no_rope_layers": [1] * built.num_hidden_layers, **kinds})
        if built.model_type == "smollm3":
            yield Mistake("no_rope_layers inverted", {"no_rope_layers": [1 - v for v in built.no_rope_layers], **kinds})
    if built.model_type == "llama4_text":
        yield Mistake("no query temperature", {"attn_temperature_tuning": False})
        yield Mistake("attn_scale * 1.1", {"attn_scale": built.attn_scale * 1.1})
        floor = torch.floor
        yield Mistake("temperature counts from position 0", patch=lambda model: mock.patch.object(
            torch, "floor", lambda x: floor(x - 1 / model.config.floor_scale)))
        if built.use_qk_norm:
            yield Mistake("no qk norm", model=replace_forward("qk_norm", IDENTITY))
        else:
            yield Mistake("qk norm", {"use_qk_norm": True})
    if built.model_type in ("qwen3", "qwen3_moe", "gemma3_text"):
        yield Mistake("qk norm after rope", patch=norm_after_rope)
    if built.model_type == "olmo2":
        def per_head(module, forward):
            def run(x):
                heads = x.view(*x.shape[:-1], -1, built.hidden_size // built.num_attention_heads)
                normed = heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + built.rms_norm_eps)
                return normed.reshape(x.shape) * module.weight
            return run
        yield Mistake("qk norm per head", model=lambda m: (replace_forward("q_norm", per_head)(m),
                                                           replace_forward("k_norm", per_head)(m)))
    if getattr(built, "kv_lora_rank", None):
        def config_eps(model):
            for ending in ("q_a_layernorm", "kv_a_layernorm"):
                for module in modules(model, ending):
                    module.variance_epsilon = built.rms_norm_eps
        yield Mistake("latent norms with rms_norm_eps", model=config_eps)
        parameters = config["rope_parameters"]
        if parameters.get("mscale_all_dim"):
            import math
            m = 0.1 * parameters["mscale_all_dim"] * math.log(parameters["factor"]) + 1
            yield Mistake("no mscale in the softmax scale", model=scale_attention(1 / m / m))
            yield Mistake("mscale not squared", model=scale_attention(1 / m))
            if parameters["mscale"] != parameters["mscale_all_dim"]:
                n = 0.1 * parameters["mscale"] * math.log(parameters["factor"]) + 1
                yield Mistake("mscale instead of mscale_all_dim", model=scale_attention(n * n / m / m))


def weight_mistakes(case, config, built, state):
    gemma = built.model_type.startswith("gemma")
    gpt2 = built.model_type == "gpt2"
    eps = "layer_norm_epsilon" if gpt2 else "rms_norm_eps"
    yield Mistake(f"{eps} 1e-6", {eps: 1e-6})
    # Every kind of vector left out: biases as zeros, norm weights as ones.
    kinds = sorted({".".join(n.split(".")[-2:]) for n, v in state.items() if v.dim() == 1})
    for kind in kinds:
        if kind.endswith("norm.weight") or kind.startswith("ln_") and kind.endswith("weight"):
            plain = torch.zeros_like if gemma else torch.ones_like
            yield Mistake(f"{kind} left out", state=edit_parameters("." + kind, plain))
        elif kind == "c_attn.bias":  # a key bias without rope moves nothing: softmax does not see it
            for part, label in ((0, "q"), (2, "v")):
                def zero(value, part=part):
                    value = value.clone()
                    value.view(3, -1)[part] = 0
                    return value
                yield Mistake(f"{label} bias left out", state=edit_parameters(kind, zero))
        elif "rope_parameters" in config and built.model_type == "smollm3" and kind == "k_proj.bias":
            yield Mistake(f"{kind} left out", state=edit_parameters(kind, torch.zeros_like))
        else:
            yield Mistake(f"{kind} left out", state=edit_parameters(kind, torch.zeros_like))
    for kind in sorted({n.split(".")[-2] for n in state if n.endswith(("norm.weight", "ln_1.weight", "ln_2.weight"))}):
        yield Mistake(f"{kind} skipped", model=replace_forward("." + kind, IDENTITY))
    for kind in sorted({n.split(".")[-1] for n, v in state.items() if n.endswith("_bias") and v.dim() == 2}):
        yield Mistake(f"{kind} left out", state=edit_parameters(kind, torch.zeros_like))
    if gemma:
        yield Mistake("norm weights without + 1", state=edit_parameters("norm.weight", lambda w: w - 1))
        yield Mistake("embedding not scaled", model=lambda m: m.get_input_embeddings().register_forward_hook(
            lambda module, x, y: y / built.hidden_size**0.5) and None)
    if gpt2:
        yield Mistake("positions off by one", state=edit_parameters("wpe.weight", lambda w: w.roll(-1, 0)))
        yield Mistake("no positions", state=edit_parameters("wpe.weight", torch.zeros_like))
        yield Mistake("c_proj not transposed", state=edit_parameters("attn.c_proj.weight", lambda w: w.T.clone()))
        def rms(module, forward):
            return lambda x: F.rms_norm(x, x.shape[-1:], module.weight, module.eps) + module.bias
        yield Mistake("RMS instead of layer norm", model=lambda m: [
            replace_forward(k, rms)(m) for k in ("ln_1", "ln_2", "ln_f")])
        if built.scale_attn_by_inverse_layer_idx:
            yield Mistake("scale_attn_by_inverse_layer_idx ignored", {"scale_attn_by_inverse_layer_idx": False})
    embedding = "transformer.wte.weight" if gpt2 else "model.embed_tokens.weight"
    if not built.tie_word_embeddings:
        yield Mistake("head taken from the embedding", state=lambda s: s.__setitem__("lm_head.weight", s[embedding]))


def ffn_mistakes(case, config, built, state):
    kind = built.model_type
    names = {"gpt2": ("activation_function", "gelu"), "gemma2": ("hidden_activation", "gelu"),
             "gemma3_text": ("hidden_activation", "gelu")}
    if kind != "gpt_oss":
        name, other = names.get(kind, ("hidden_act", "gelu"))
        yield Mistake(f"activation {other}", {name: other})
    if any(n.endswith("mlp.gate_proj.weight") for n in state):
        def swap(s):
            for name in [n for n in s if n.endswith("gate_proj.weight")]:
                other = name.replace("gate_proj", "up_proj")
                s[name], s[other] = s[other], s[name]
        yield Mistake("gate and up swapped", state=swap)
    if kind == "phi3":
        yield Mistake("gate and up swapped", state=edit_parameters("gate_up_proj.weight", lambda w: halves(w, 0)))
        q, kv = 64, built.num_key_value_heads * 16
        yield Mistake("k and v swapped", state=edit_parameters("qkv_proj.weight", lambda w: torch.cat(
            [w[:q], w[q + kv:], w[q:q + kv]])))
    rule = routing_of(built)
    if rule is None:
        return
    if kind == "llama4_text":
        yield Mistake("weight on the expert's output", model=llama4_weight_on_output)
        yield Mistake("softmax instead of sigmoid", model=llama4_scores(lambda v: v.softmax(-1)))
        yield Mistake("gate and up interleaved", state=edit_parameters("experts.gate_up_proj", interleaved))
        yield Mistake("shared expert left out",
                      model=replace_forward("shared_expert", lambda m, f: lambda x: torch.zeros_like(x)))
        yield Mistake("one expert more", {"num_experts_per_tok": rule.k + 1})
        return
    if kind == "gpt_oss":
        yield Mistake("gate and up in halves", state=edit_parameters("experts.gate_up_proj", lambda w: torch.stack(
            w.chunk(2, -1), -1).flatten(-2)))
        yield Mistake("swiglu_limit * 1.2", {"swiglu_limit": built.swiglu_limit * 1.2})
        yield Mistake("swiglu_alpha 1", {"swiglu_alpha": 1.0})
        def no_plus_one(model):
            for module in modules(model, "experts"):
                def gate(x, module=module):
                    g, u = x[..., ::2].clamp(max=module.limit), x[..., 1::2].clamp(-module.limit, module.limit)
                    return u * g * torch.sigmoid(g * module.alpha)
                module._apply_gate = gate
        yield Mistake("up without + 1", model=no_plus_one)
        yield Mistake("weights from the softmax over all experts", model=route_by(score="softmax"))
    else:
        yield Mistake("gate and up of the experts swapped",
                      state=edit_parameters("experts.gate_up_proj", lambda w: halves(w, 1)))
    yield Mistake("one expert more", {"num_experts_per_tok": rule.k + 1})
    if kind in ("mixtral", "qwen3_moe", "deepseek_v3") and rule.k > 1:
        yield Mistake("renormalisation the other way", model=route_by(renormalize=not rule.renormalize))
    if kind == "deepseek_v2":
        yield Mistake("renormalised", model=route_by(renormalize=True))
    if rule.scale != 1:
        yield Mistake("no routed scale", model=route_by(scale=1.0))
    if rule.groups > 1:
        yield Mistake("no groups", model=route_by(groups=1))
        other = "max" if rule.group_score == "top2" else "top2"
        yield Mistake(f"group score by {other}", model=route_by(group_score=other))
    if kind == "deepseek_v3":
        yield Mistake("selection bias in the weights", model=route_by(bias_in_weights=True))
        yield Mistake("softmax instead of sigmoid", model=route_by(score="softmax"))
        if rule.groups > 1:
            yield Mistake("masked experts at 0", model=route_by(masked=0.0))
    if kind.startswith("deepseek"):
        yield Mistake("shared experts left out",
                      model=replace_forward("shared_experts", lambda m, f: lambda x: torch.zeros_like(x)))


def mistakes(case, built, state):
    config = case.config
    yield from attention_mistakes(case, config, built)
    yield from weight_mistakes(case, config, built, state)
    yield from ffn_mistakes(case, config, built, state)
