// The opaque types of ops.h as the reference keeps them: plain vectors of f32.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ops/ops.h"

namespace sluice::reference {

using Floats = std::vector<float>;

struct Matrix : LinearWeights {
  int64_t out = 0, in = 0;
  Floats values;  // [out, in]
  int64_t out_features() const override { return out; }
  int64_t in_features() const override { return in; }
  int64_t resident_bytes() const override { return int64_t(values.size()) * 4; }
};

struct Vector : VectorWeights {
  Floats values;
  int64_t size() const override { return int64_t(values.size()); }
};

struct Rope : RopeTableData {
  RopeTable table;
  int32_t max_position = 0;
};

struct Rows : Activations {
  int64_t num_rows = 0, num_cols = 0;
  Floats values;
  int64_t rows() const override { return num_rows; }
  int64_t cols() const override { return num_cols; }
  float* row(int64_t r) { return &values[size_t(r * num_cols)]; }
  const float* row(int64_t r) const { return &values[size_t(r * num_cols)]; }
};

// Per storage and slot: the K of all heads, then their V, each value as it comes back from the cache's type.
struct Cache : KvCache {
  KvCacheShape cache_shape;
  std::vector<Floats> storages;  // by layer; empty where a layer before it owns the storage
  const KvCacheShape& shape() const override { return cache_shape; }
  int64_t slot_values(int layer) const {
    const KvLayerShape& s = cache_shape.layers[layer];
    return int64_t{s.num_kv_heads} * (s.head_dim + s.value_head_dim);
  }
  float* k(int layer, int64_t slot, int head) {
    return &storages[cache_shape.StorageOwner(size_t(layer))]
                    [size_t(slot * slot_values(layer) + int64_t{head} * cache_shape.layers[layer].head_dim)];
  }
  float* v(int layer, int64_t slot, int head) {
    const KvLayerShape& s = cache_shape.layers[layer];
    return k(layer, slot, s.num_kv_heads) + int64_t{head} * s.value_head_dim;
  }
};

inline const Matrix& M(const LinearWeights* w) { return static_cast<const Matrix&>(*w); }
inline const float* V(const VectorWeights* v) { return v ? static_cast<const Vector*>(v)->values.data() : nullptr; }
inline Rows& R(Activations* a) { return static_cast<Rows&>(*a); }
inline const Rows& R(const Activations* a) { return static_cast<const Rows&>(*a); }

}  // namespace sluice::reference
