#include "engine/model/unknown_keys.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

// Names of the model, its author's tools and its files.
constexpr absl::string_view kOfTheFile[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "attn_implementation",
    "for_llm_compressor",
    "max_sequence_length",
    "model_max_length",
    "output_past",
    "tokenizer_class",
    "use_flash_attention",
    "use_flash_attn",
    "architectures",
    "auto_map",
    "custom_pipelines",
    "dtype",
    "id2label",
    "label2id",
    "model_type",
    "transformers.js_config",
    "transformers_version",
    "torch_dtype",
    "license",
};

// Training, and what a forward pass hands back besides logits.
constexpr absl::string_view kOfTraining[] = {
    "aux_loss_alpha",
    "ep_size",
    "gradient_checkpointing",
    "ignore_index",
    "neftune_noise_alpha",
    "num_logits_to_keep",
    "initializer_factor",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "n_special",
    "num_nextn_predict_layers",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "predict_special_tokens",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "router_z_loss_coef",
    "seq_aux",
    "task_specific_params",
    "finetuning_task",
    "add_cross_attention",
    "cross_attention_hidden_size",
    "chunk_size_feed_forward",
    "tie_encoder_decoder",
    "torchscript",
    "pruned_heads",
    "use_bfloat16",
    "tf_legacy_loss",
};

// Generation and the cache.
constexpr absl::string_view kOfGeneration[] = {
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "decoder_start_token_id",
    "eos_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "pad_token_id",
    "prefix",
    "sep_token_id",
    "suppress_tokens",
    "use_cache",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "max_length",
    "min_length",
    "num_beams",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "num_return_sequences",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_beam_groups",
    "diversity_penalty",
    "exponential_decay_length_penalty",
    "return_dict_in_generate",
    "output_scores",
    "remove_invalid_values",
};

// Pictures and sounds, and positions in them; the text model beside them computes the same without.
constexpr absl::string_view kOfOtherModalities[] = {
    "audio_config",        "boi_token_index",       "eoi_token_index",      "image_token_id",
    "audio_token_id",      "boi_token_id",          "eoi_token_id",         "image_seq_length",
    "image_token_index",   "mm_tokens_per_image",   "projector_hidden_act", "vision_config",
    "vision_end_token_id", "vision_start_token_id", "video_token_id",       "use_mrope",
};

template <size_t N>
bool Contains(const absl::string_view (&list)[N], absl::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

bool IsHarmless(absl::string_view key) {
  // A multimodal model's text_config repeats the keys of the whole.
  key = absl::StripPrefix(key, "text_config.");
  // How the weights were quantised shows in the tensors themselves.
  if (absl::StartsWith(key, "quantization_config.")) return true;
  // Whether YaRN's factor was there in training, too: Nous Research's files say it.
  if (key == "rope_scaling.finetuned" || key == "rope_parameters.finetuned") return true;
  if (absl::StartsWith(key, "unsloth_")) return true;
  if (absl::EndsWith(key, "_dropout") || absl::EndsWith(key, "_pdrop") || absl::StartsWith(key, "summary_"))
    return true;
  return Contains(kOfTheFile, key) || Contains(kOfTraining, key) || Contains(kOfGeneration, key) ||
         Contains(kOfOtherModalities, key);
}

}  // namespace

std::vector<std::string> UnknownKeys(const ConfigJson& config) {
  std::vector<std::string> keys = config.UnreadKeys();
  keys.erase(std::remove_if(keys.begin(), keys.end(), IsHarmless), keys.end());
  return keys;
}

}  // namespace sluice
