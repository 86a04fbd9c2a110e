// What each architecture file gives to its row in registry.cc.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/io/gguf.h"
#include "engine/model/config_json.h"
#include "engine/model/registry.h"
#include "engine/model/spec.h"

namespace sluice {

// tensor_names.cc: the names that most architectures share.
TensorNaming GgufTensorNames();
TensorNaming HuggingFaceDenseTensorNames();  // without mixtures of experts
TensorNaming HuggingFaceTensorNames();
// `own`, and of the shared names those whose role and tensor `own` does not mention. For tables that live for ever.
std::vector<TensorName> ExtendNames(absl::Span<const TensorName> own, const TensorNaming& shared);

// llama.cc
absl::StatusOr<ModelSpec> LlamaFromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> LlamaFromConfig(const ConfigJson& config);

// gpt2.cc
absl::StatusOr<ModelSpec> Gpt2FromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> Gpt2FromConfig(const ConfigJson& config);
TensorNaming Gpt2GgufTensorNames();
TensorNaming Gpt2FolderTensorNames();

// mistral.cc
absl::StatusOr<ModelSpec> MistralFromConfig(const ConfigJson& config);
absl::StatusOr<ModelSpec> MixtralFromConfig(const ConfigJson& config);
TensorNaming MixtralFolderTensorNames();

// qwen.cc
absl::StatusOr<ModelSpec> Qwen2FromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> Qwen2FromConfig(const ConfigJson& config);
absl::StatusOr<ModelSpec> Qwen3FromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> Qwen3FromConfig(const ConfigJson& config);
absl::StatusOr<ModelSpec> Qwen3MoeFromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> Qwen3MoeFromConfig(const ConfigJson& config);

// olmo2.cc
absl::StatusOr<ModelSpec> Olmo2FromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> Olmo2FromConfig(const ConfigJson& config);
TensorNaming Olmo2FolderTensorNames();

// smollm3.cc
absl::StatusOr<ModelSpec> SmolLm3FromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> SmolLm3FromConfig(const ConfigJson& config);

// phi3.cc
absl::StatusOr<ModelSpec> Phi3FromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> Phi3FromConfig(const ConfigJson& config);
TensorNaming Phi3GgufTensorNames();
TensorNaming Phi3FolderTensorNames();

// deepseek.cc
absl::StatusOr<ModelSpec> DeepseekFromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> DeepseekV2FromConfig(const ConfigJson& config);
absl::StatusOr<ModelSpec> DeepseekV3FromConfig(const ConfigJson& config);
TensorNaming DeepseekFolderTensorNames();
TensorNaming DeepseekGgufTensorNames();

// gemma.cc
absl::StatusOr<ModelSpec> Gemma2FromConfig(const ConfigJson& config);
absl::StatusOr<ModelSpec> Gemma2FromGguf(const Gguf& gguf);
absl::StatusOr<ModelSpec> Gemma3FromConfig(const ConfigJson& config);  // the multimodal model
absl::StatusOr<ModelSpec> Gemma3TextFromConfig(const ConfigJson& config);
absl::StatusOr<ModelSpec> Gemma3FromGguf(const Gguf& gguf);
TensorNaming GemmaFolderTensorNames();
TensorNaming GemmaGgufTensorNames();

// gpt_oss.cc
absl::StatusOr<ModelSpec> GptOssFromConfig(const ConfigJson& config);
absl::StatusOr<ModelSpec> GptOssFromGguf(const Gguf& gguf);
TensorNaming GptOssFolderTensorNames();
TensorNaming GptOssGgufTensorNames();

// llama4.cc
absl::StatusOr<ModelSpec> Llama4FromConfig(const ConfigJson& config);  // the multimodal model
absl::StatusOr<ModelSpec> Llama4TextFromConfig(const ConfigJson& config);
absl::StatusOr<ModelSpec> Llama4FromGguf(const Gguf& gguf);
TensorNaming Llama4FolderTensorNames();

}  // namespace sluice
