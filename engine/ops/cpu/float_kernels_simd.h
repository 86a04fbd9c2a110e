// The table of float_kernels.h, filled with the functions compiled for SLUICE_VEC. Included once per instruction set.
#pragma once

#include "engine/ops/cpu/activation_kernels.h"
#include "engine/ops/cpu/attention_kernels.h"
#include "engine/ops/cpu/float_kernel_tables.h"
#include "engine/ops/cpu/latent_kernels.h"
#include "engine/ops/cpu/norm_kernels.h"
#include "engine/ops/cpu/rope_kernels.h"
#include "engine/ops/cpu/sample_kernels.h"

namespace sluice {
namespace {

constexpr FloatKernels MakeFloatKernels(Isa isa) {
  FloatKernels k{};
  k.isa = isa;
  k.norm = Norm;
  k.add = AddTo;
  k.softcap = Softcap;
  k.rope = Rope;
  k.activate = Activate;
  k.to_cache_f16 = ToCacheF16;
  k.attend_f32 = Attend<KvF32>;
  k.attend_f16 = Attend<KvF16>;
  k.attend_bf16 = Attend<KvBf16>;
  k.widen_f16 = Widen<KvF16>;
  k.widen_bf16 = Widen<KvBf16>;
  k.merge_states = MergeStates;
  k.finish_state = FinishState;
  k.attend_latents = AttendLatents;
  k.merge_latents = MergeLatents;
  k.scan = Scan;
  k.find = Find;
  k.weigh = Weigh;
  k.mass = Mass;
  k.gather = Gather;
  k.count_above = CountAbove;
  k.gumbel_max = GumbelMax;
  return k;
}

}  // namespace
}  // namespace sluice
