// The kernels that LaunchAttention chooses from, each with the arguments it can run.
#pragma once

#include "engine/ops/cuda/kernels/attention.h"
#include "engine/ops/cuda/kernels/cuda_language.h"

namespace sluice::cuda {

// Any sizes and types. Reads no plan.
void LaunchScalarAttention(const AttentionKernelArgs& args, Stream stream);

// The mma kernels: activations in bf16, a cache of T in 16 bits, kDim = head_dim, kValueDim = value_head_dim. Calls
// X(T, kDim, kValueDim) for each that there is.
#define SLUICE_ATTENTION_DIMS(X, T) X(T, 32, 32) X(T, 64, 64) X(T, 96, 96) X(T, 128, 128) X(T, 192, 128) X(T, 256, 256)
#define SLUICE_ATTENTION_INSTANCES(X) SLUICE_ATTENTION_DIMS(X, __nv_bfloat16) SLUICE_ATTENTION_DIMS(X, __half)

// The plan's parts, their merge included.
template <class T, int kDim, int kValueDim>
void LaunchDecodeAttention(const AttentionKernelArgs& args, Stream stream);

// The plan's tiles.
template <class T, int kDim, int kValueDim>
void LaunchPrefillAttention(const AttentionKernelArgs& args, Stream stream);

// Absorbed MLA: kDim = head_dim, kValueDim = latent_value_dim. That of DeepSeek-V2 and V3, and of toy models.
#define SLUICE_LATENT_INSTANCES(X) \
  X(__nv_bfloat16, 576, 512) X(__half, 576, 512) X(__nv_bfloat16, 48, 32) X(__half, 48, 32)

// All rows.
template <class T, int kDim, int kValueDim>
void LaunchLatentAttention(const AttentionKernelArgs& args, Stream stream);

// The plan's merges.
void LaunchMergeAttention(const AttentionKernelArgs& args, Stream stream);

}  // namespace sluice::cuda
