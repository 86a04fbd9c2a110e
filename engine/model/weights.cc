#include "engine/model/weights.h"

#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/check.h"
#include "engine/base/dequantize.h"
#include "engine/base/status_macros.h"
#include "engine/model/tensor_roles.h"

namespace sluice {
namespace {

std::string ShapeText(absl::Span<const int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

// The tensors of a file by their meaning: all there, all of the right shape, nothing left over.
class TensorsByRole {
 public:
  static absl::StatusOr<TensorsByRole> Match(const ModelSpec& spec, const TensorNaming& naming,
                                             absl::Span<const TensorView> tensors, const std::string& file) {
    TensorsByRole matched;
    absl::flat_hash_map<absl::string_view, const TensorView*> by_name;
    for (const TensorView& tensor : tensors) by_name[tensor.name] = &tensor;
    absl::flat_hash_set<absl::string_view> used;
    for (const ExpectedTensor& expected : ExpectedTensors(spec)) {
      const std::optional<std::string> name = FindTensorName(naming, expected.role, expected.layer);
      if (!name.has_value()) {
        return absl::UnimplementedError(absl::StrCat(file, ": this kind of file has no name for a tensor of shape ",
                                                     ShapeText(expected.shape), " in layer ", expected.layer));
      }
      const auto it = by_name.find(*name);
      if (it == by_name.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat(file, ": tensor '", *name, "' is missing; expected shape ", ShapeText(expected.shape)));
      }
      const TensorView& tensor = *it->second;
      if (tensor.shape != expected.shape) {
        return absl::InvalidArgumentError(absl::StrCat(file, ": tensor '", *name, "' has shape ",
                                                       ShapeText(tensor.shape), ", expected ",
                                                       ShapeText(expected.shape)));
      }
      if (!CanDequantize(tensor.type)) {
        return absl::UnimplementedError(absl::StrCat(file, ": tensor '", *name, "' is stored as ",
                                                     TensorTypeName(tensor.type), ", which is not supported"));
      }
      used.insert(tensor.name);
      matched.tensors_[{expected.role, expected.layer}] = &tensor;
    }
    for (const TensorView& tensor : tensors) {
      if (used.contains(tensor.name)) continue;
      if (IsIgnoredTensor(naming, tensor.name, int32_t(spec.layers.size()))) continue;
      return absl::InvalidArgumentError(absl::StrCat(file, ": tensor '", tensor.name, "' of shape ",
                                                     ShapeText(tensor.shape), " is not known for architecture '",
                                                     spec.architecture, "'; leaving it out would change the model"));
    }
    return matched;
  }

  // Null if the spec does not call for it.
  const TensorView* Find(TensorRole role, int32_t layer) const {
    const auto it = tensors_.find({role, layer});
    return it == tensors_.end() ? nullptr : it->second;
  }

 private:
  absl::flat_hash_map<std::pair<TensorRole, int32_t>, const TensorView*> tensors_;
};

// Brings the tensors of one layer (or of the model, layer -1) onto the device.
class Loader {
 public:
  Loader(const TensorsByRole& tensors, const std::string& file, Ops* ops, int64_t* resident_bytes)
      : tensors_(tensors), file_(file), ops_(ops), resident_bytes_(*resident_bytes) {}

  void SetLayer(int32_t layer) { layer_ = layer; }

  // One matrix of several parts; null if the first part is not there.
  absl::Status Linear(std::initializer_list<TensorRole> roles, LinearLayout layout,
                      std::unique_ptr<LinearWeights>* out) {
    std::vector<TensorView> parts;
    for (TensorRole role : roles) {
      const TensorView* tensor = tensors_.Find(role, layer_);
      if (tensor == nullptr) continue;
      parts.push_back(*tensor);
    }
    if (parts.empty()) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<LinearWeights>> loaded = ops_->LoadLinear(parts, layout);
    if (!loaded.ok()) return InFile(loaded.status());
    *out = *std::move(loaded);
    resident_bytes_ += (*out)->resident_bytes();
    return absl::OkStatus();
  }

  // One vector of several parts, each of the length that goes with it; zeros for a part that is not there, null if none
  // is.
  absl::Status Vector(std::initializer_list<std::pair<TensorRole, int64_t>> parts,
                      std::unique_ptr<VectorWeights>* out) {
    std::vector<float> values;
    bool any = false;
    for (const auto& [role, size] : parts) {
      const size_t offset = values.size();
      values.resize(offset + size_t(size));
      const TensorView* tensor = tensors_.Find(role, layer_);
      if (tensor == nullptr) continue;
      any = true;
      SLUICE_CHECK(tensor->num_elements() == size);
      DequantizeRow(tensor->type, tensor->data.data(), size, &values[offset]);
    }
    if (!any) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<VectorWeights>> loaded = ops_->LoadVector(values);
    if (!loaded.ok()) return InFile(loaded.status());
    *out = *std::move(loaded);
    return absl::OkStatus();
  }
  absl::Status Vector(TensorRole role, std::unique_ptr<VectorWeights>* out) {
    const TensorView* tensor = tensors_.Find(role, layer_);
    if (tensor == nullptr) return absl::OkStatus();
    return Vector({{role, tensor->num_elements()}}, out);
  }

  absl::Status Norm(TensorRole weight, TensorRole bias, NormWeights* out) {
    SLUICE_RETURN_IF_ERROR(Vector(weight, &out->weight));
    return Vector(bias, &out->bias);
  }

  absl::Status Layer(const LayerSpec& spec, LayerWeights* out) {
    using enum TensorRole;
    const Gqa& gqa = std::get<Gqa>(spec.attention.kind);
    const DenseFfn& ffn = std::get<DenseFfn>(spec.ffn);
    SLUICE_RETURN_IF_ERROR(Norm(kPreAttnNorm, kPreAttnNormBias, &out->pre_attn));
    SLUICE_RETURN_IF_ERROR(Norm(kPostAttnNorm, kPostAttnNormBias, &out->post_attn));
    SLUICE_RETURN_IF_ERROR(Norm(kPreFfnNorm, kPreFfnNormBias, &out->pre_ffn));
    SLUICE_RETURN_IF_ERROR(Norm(kPostFfnNorm, kPostFfnNormBias, &out->post_ffn));
    SLUICE_RETURN_IF_ERROR(Linear({kQ, kK, kV}, LinearLayout::kStacked, &out->qkv));
    SLUICE_RETURN_IF_ERROR(Vector({{kQBias, int64_t{gqa.num_heads} * gqa.head_dim},
                                   {kKBias, int64_t{gqa.num_kv_heads} * gqa.head_dim},
                                   {kVBias, int64_t{gqa.num_kv_heads} * gqa.value_head_dim}},
                                  &out->qkv_bias));
    SLUICE_RETURN_IF_ERROR(Vector(kQNorm, &out->q_norm));
    SLUICE_RETURN_IF_ERROR(Vector(kKNorm, &out->k_norm));
    SLUICE_RETURN_IF_ERROR(Vector(kSinks, &out->sinks));
    SLUICE_RETURN_IF_ERROR(Linear({kO}, LinearLayout::kStacked, &out->attn_out));
    SLUICE_RETURN_IF_ERROR(Vector(kOBias, &out->attn_out_bias));
    const int64_t width = ffn.intermediate_size;
    if (ffn.gated) {
      SLUICE_RETURN_IF_ERROR(Linear({kGate, kUp}, LinearLayout::kGateUp, &out->gate_up));
      SLUICE_RETURN_IF_ERROR(Vector({{kGateBias, width}, {kUpBias, width}}, &out->gate_up_bias));
    } else {
      SLUICE_RETURN_IF_ERROR(Linear({kUp}, LinearLayout::kStacked, &out->gate_up));
      SLUICE_RETURN_IF_ERROR(Vector(kUpBias, &out->gate_up_bias));
    }
    SLUICE_RETURN_IF_ERROR(Linear({kDown}, LinearLayout::kStacked, &out->down));
    return Vector(kDownBias, &out->down_bias);
  }

 private:
  absl::Status InFile(const absl::Status& status) const {
    return absl::Status(status.code(), absl::StrCat(file_, ": ", status.message()));
  }

  const TensorsByRole& tensors_;
  const std::string& file_;
  Ops* const ops_;
  int64_t& resident_bytes_;
  int32_t layer_ = -1;
};

}  // namespace

absl::Status CheckRunnable(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (std::holds_alternative<Mla>(layer.attention.kind)) {
      return absl::UnimplementedError(absl::StrCat("architecture '", spec.architecture,
                                                   "' uses multi-head latent attention, which is not supported yet"));
    }
    if (std::holds_alternative<MoeFfn>(layer.ffn)) {
      return absl::UnimplementedError(
          absl::StrCat("architecture '", spec.architecture, "' uses a mixture of experts, which is not supported yet"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelWeights> LoadWeights(const ModelSpec& spec, const TensorNaming& naming,
                                         absl::Span<const TensorView> tensors, const std::string& file, Ops* ops) {
  SLUICE_ASSIGN_OR_RETURN(const TensorsByRole matched, TensorsByRole::Match(spec, naming, tensors, file));
  ModelWeights weights;
  Loader loader(matched, file, ops, &weights.resident_bytes);
  SLUICE_RETURN_IF_ERROR(loader.Linear({TensorRole::kTokenEmbedding}, LinearLayout::kStacked, &weights.embedding));
  SLUICE_RETURN_IF_ERROR(loader.Linear({TensorRole::kPositionEmbedding}, LinearLayout::kStacked, &weights.positions));
  SLUICE_RETURN_IF_ERROR(loader.Norm(TensorRole::kFinalNorm, TensorRole::kFinalNormBias, &weights.final_norm));
  SLUICE_RETURN_IF_ERROR(loader.Linear({TensorRole::kOutputHead}, LinearLayout::kStacked, &weights.head));
  weights.layers.resize(spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    loader.SetLayer(int32_t(i));
    SLUICE_RETURN_IF_ERROR(loader.Layer(spec.layers[i], &weights.layers[i]));
  }
  return weights;
}

}  // namespace sluice
