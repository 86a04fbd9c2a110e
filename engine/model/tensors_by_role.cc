#include "engine/model/tensors_by_role.h"

#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/base/check.h"
#include "engine/base/dequantize.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/model/tensor_roles.h"

namespace sluice {
namespace {

using Shape = std::vector<int64_t>;

constexpr absl::string_view kExpertPlace = "{expert}";

std::string ShapeText(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

bool HasLeadingAxis(TensorRole role) {
  switch (role) {
    case TensorRole::kKeyUp:
    case TensorRole::kValueUp:
    case TensorRole::kExpertGate:
    case TensorRole::kExpertUp:
    case TensorRole::kExpertDown:
    case TensorRole::kExpertGateBias:
    case TensorRole::kExpertUpBias:
    case TensorRole::kExpertDownBias:
      return true;
    default:
      return false;
  }
}

// What a role consists of: `count` matrices [rows, cols], or vectors [rows].
struct RoleShape {
  explicit RoleShape(const ExpectedTensor& expected) {
    const Shape& shape = expected.shape;
    leading = HasLeadingAxis(expected.role);
    if (leading) count = shape[0];
    rows = shape[leading ? 1 : 0];
    is_matrix = shape.size() == (leading ? 3u : 2u);
    if (is_matrix) cols = shape.back();
  }

  bool leading = false, is_matrix = false;
  int64_t count = 1, rows = 0, cols = 1;
};

}  // namespace

StoredMatrix StoredRole::Matrix(int64_t index) const {
  SLUICE_CHECK(index >= 0 && index < count_);
  const bool own_tensor = tensors_.size() > 1;
  StoredMatrix matrix = whole_;
  std::tie(matrix.tensor, matrix.companion) = tensors_[own_tensor ? size_t(index) : 0];
  if (own_tensor) return matrix;
  if (merged_) {
    matrix.first_row += index * (whole_.slab_rows / count_);
  } else {
    matrix.slab = index;
  }
  return matrix;
}

class RoleMatcher {
 public:
  RoleMatcher(const ModelSpec& spec, const TensorNaming& naming, absl::Span<const TensorView> tensors,
              const std::string& file, Fp8BlockSize fp8_block)
      : spec_(spec), naming_(naming), tensors_(tensors), file_(file), fp8_block_(fp8_block) {}

  absl::StatusOr<TensorsByRole> Match() {
    for (const TensorView& tensor : tensors_) {
      if (!by_name_.insert({tensor.name, &tensor}).second) {
        return Bad(absl::StrCat("tensor ", Quote(tensor.name), " is there twice"));
      }
    }
    ChoosePrefix();
    const std::vector<ExpectedTensor> expected = ExpectedTensors(spec_);
    for (const ExpectedTensor& tensor : expected) expected_.insert({{tensor.role, tensor.layer}, &tensor});
    for (const ExpectedTensor& tensor : expected) {
      if (tensor.role == TensorRole::kOutputHead) continue;
      SLUICE_RETURN_IF_ERROR(MatchRole(tensor));
    }
    SLUICE_RETURN_IF_ERROR(MatchOutputHead());
    for (const TensorView& tensor : tensors_) {
      if (used_.contains(&tensor) || IsIgnoredTensor(naming_, tensor.name, int32_t(spec_.layers.size()))) continue;
      return Bad(absl::StrCat("tensor ", Quote(tensor.name), " of shape ", ShapeText(tensor.shape),
                              " is not known for architecture ", Quote(spec_.architecture),
                              "; leaving it out would change the model"));
    }
    return std::move(matched_);
  }

 private:
  absl::Status Bad(absl::string_view what) const { return absl::InvalidArgumentError(absl::StrCat(file_, ": ", what)); }

  const TensorView* FindTensor(absl::string_view name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }

  std::string NameOf(absl::string_view pattern, int32_t layer, int32_t expert) const {
    return ExpandTensorName(pattern, prefix_, layer, absl::StrContains(pattern, kExpertPlace) ? expert : -1);
  }

  // The first entry of the naming whose tensor the file has; null if there is none.
  const TensorName* FindEntry(TensorRole role, int32_t layer) const {
    for (const TensorName& name : naming_.names) {
      if (name.role == role && FindTensor(NameOf(name.pattern, layer, 0)) != nullptr) return &name;
    }
    return nullptr;
  }

  void ChoosePrefix() {
    for (absl::string_view prefix : naming_.prefixes) {
      prefix_ = prefix;
      if (FindEntry(TensorRole::kTokenEmbedding, -1) != nullptr) return;
    }
    if (!naming_.prefixes.empty()) prefix_ = naming_.prefixes[0];
  }

  absl::Status MatchRole(const ExpectedTensor& expected) {
    const TensorName* entry = FindEntry(expected.role, expected.layer);
    if (entry == nullptr) return Missing(expected);
    return MatchEntry(expected, *entry);
  }

  absl::Status Missing(const ExpectedTensor& expected) const {
    for (const TensorName& name : naming_.names) {
      if (name.role != expected.role) continue;
      const Shape& shape = expected.shape;
      const bool each = absl::StrContains(name.pattern, kExpertPlace);
      return Bad(absl::StrCat("tensor ", Quote(NameOf(name.pattern, expected.layer, 0)), " is missing; expected shape ",
                              ShapeText(each ? Shape(shape.begin() + 1, shape.end()) : shape)));
    }
    return absl::UnimplementedError(absl::StrCat(file_, ": this kind of file has no name for a tensor of shape ",
                                                 ShapeText(expected.shape), " in layer ", expected.layer));
  }

  absl::Status MatchEntry(const ExpectedTensor& expected, const TensorName& entry) {
    const RoleShape shape(expected);
    StoredRole role;
    role.count_ = shape.count;
    StoredMatrix& whole = role.whole_;
    whole.fp8_block = fp8_block_;
    whole.transposed = shape.is_matrix && entry.form.transposed;
    whole.encoding = entry.form.encoding;
    whole.rows = shape.rows;
    whole.cols = shape.cols;
    PlaceRows(expected, entry, &whole);
    const bool each = shape.leading && absl::StrContains(entry.pattern, kExpertPlace);
    for (int32_t e = 0; e < (each ? shape.count : 1); ++e) {
      const std::string name = NameOf(entry.pattern, expected.layer, e);
      const TensorView* tensor = FindTensor(name);
      if (tensor == nullptr) {
        return Bad(absl::StrCat("tensor ", Quote(name), " is missing; expected shape ",
                                ShapeText(StoredShape(whole, shape.is_matrix))));
      }
      SLUICE_RETURN_IF_ERROR(CheckTensor(*tensor, shape, each, &role));
      SLUICE_ASSIGN_OR_RETURN(const TensorView* companion, FindCompanion(*tensor, shape, role));
      used_.insert(tensor);
      role.tensors_.push_back({tensor, companion});
    }
    matched_.roles_.insert({{expected.role, expected.layer}, std::move(role)});
    return absl::OkStatus();
  }

  // Which rows of the tensor are those of the role, by the other roles that share it.
  void PlaceRows(const ExpectedTensor& expected, const TensorName& entry, StoredMatrix* whole) const {
    whole->slab_rows = 0;
    int64_t before = 0, roles_before = 0, roles = 0;
    bool seen = false;
    for (const TensorName& name : naming_.names) {
      if (name.pattern != entry.pattern) continue;
      const auto it = expected_.find({name.role, expected.layer});
      const bool own = name.role == expected.role;
      if (it == expected_.end() && !own) continue;
      if (own) seen = true;
      const int64_t rows = own ? whole->rows : RoleShape(*it->second).rows;
      if (!seen) {
        before += rows;
        ++roles_before;
      }
      whole->slab_rows += rows;
      ++roles;
    }
    const bool interleaved = entry.form.rows == TensorRows::kInterleaved;
    whole->first_row = interleaved ? roles_before : before;
    whole->row_step = interleaved ? roles : 1;
  }

  // Of one slab as it lies in the file.
  static Shape StoredShape(const StoredMatrix& whole, bool is_matrix) {
    if (!is_matrix) return {whole.slab_rows};
    if (whole.encoding == TensorEncoding::kMxfp4Blocks) {
      return {whole.slab_rows, whole.cols / kMxfp4BlockElems, kMxfp4BlockBytes};
    }
    return whole.transposed ? Shape{whole.cols, whole.slab_rows} : Shape{whole.slab_rows, whole.cols};
  }

  absl::Status CheckTensor(const TensorView& tensor, const RoleShape& shape, bool each, StoredRole* role) const {
    StoredMatrix& whole = role->whole_;
    const Shape one = StoredShape(whole, shape.is_matrix);
    Shape all = one;
    std::string also;
    if (shape.leading && !each) {
      all.insert(all.begin(), shape.count);
      Shape merged = one;
      merged[0] *= shape.count;
      if (whole.encoding == TensorEncoding::kOfType && (!whole.transposed || shape.count == 1)) {
        if (tensor.shape == merged) {
          role->merged_ = true;
          whole.slab_rows *= shape.count;
          all = merged;
        }
        also = absl::StrCat(" or ", ShapeText(merged));
      }
    }
    const auto fail = [&](const auto&... what) {
      return Bad(absl::StrCat("tensor ", Quote(tensor.name), " ", what...));
    };
    if (tensor.shape != all) {
      return fail("has shape ", ShapeText(tensor.shape), ", expected ", ShapeText(all), also);
    }
    if (whole.encoding == TensorEncoding::kMxfp4Blocks) {
      if (tensor.type != TensorType::kU8) {
        return fail("is stored as ", TensorTypeName(tensor.type), ", expected U8 blocks of MXFP4");
      }
      if (whole.cols % kMxfp4BlockElems != 0) {
        return fail("has blocks of 32 elements, but a row of ", whole.cols);
      }
    } else {
      const int block = GetTensorTypeInfo(tensor.type).block_elems;
      if (!CanDequantize(tensor.type) || (!shape.is_matrix && block != 1)) {
        return absl::UnimplementedError(absl::StrCat(file_, ": tensor ", Quote(tensor.name), " is stored as ",
                                                     TensorTypeName(tensor.type), ", which is not supported"));
      }
      if (tensor.shape.back() % block != 0) {
        return fail("has rows of ", tensor.shape.back(), " elements, expected a multiple of ", block, " for ",
                    TensorTypeName(tensor.type));
      }
    }
    SLUICE_CHECK(int64_t(tensor.data.size()) == TensorBytes(tensor.type, tensor.num_elements()));
    return absl::OkStatus();
  }

  // The tensor of factors or scales that belongs to `tensor`; null where there is none to be.
  absl::StatusOr<const TensorView*> FindCompanion(const TensorView& tensor, const RoleShape& shape,
                                                  const StoredRole& role) {
    const StoredMatrix& whole = role.whole_;
    std::string name;
    Shape expected = tensor.shape;
    if (whole.encoding == TensorEncoding::kMxfp4Blocks) {
      name = absl::StrCat(absl::StripSuffix(tensor.name, "_blocks"), "_scales");
      expected.pop_back();
    } else if (tensor.type == TensorType::kF8E4M3) {
      name = tensor.name + "_scale_inv";
      if (!shape.is_matrix) return Bad(absl::StrCat("tensor ", Quote(tensor.name), " is an F8_E4M3 vector"));
      int64_t& rows = expected[expected.size() - 2];
      int64_t& cols = expected.back();
      rows = fp8_block_.factor_rows(rows);
      cols = fp8_block_.factor_cols(cols);
    } else {
      return nullptr;
    }
    const TensorView* companion = FindTensor(name);
    if (companion == nullptr) {
      return Bad(absl::StrCat("tensor ", Quote(tensor.name), " needs a tensor ", Quote(name), " of shape ",
                              ShapeText(expected), ", which is missing"));
    }
    if (companion->shape != expected) {
      return Bad(absl::StrCat("tensor ", Quote(name), " has shape ", ShapeText(companion->shape), ", expected ",
                              ShapeText(expected), " for ", Quote(tensor.name), " of shape ", ShapeText(tensor.shape)));
    }
    const TensorType type = companion->type;
    const bool right = whole.encoding == TensorEncoding::kMxfp4Blocks
                           ? type == TensorType::kU8
                           : type == TensorType::kF32 || type == TensorType::kBF16 || type == TensorType::kF16;
    if (!right) {
      return absl::UnimplementedError(absl::StrCat(file_, ": tensor ", Quote(name), " is stored as ",
                                                   TensorTypeName(type), ", which is not supported for factors"));
    }
    SLUICE_CHECK(int64_t(companion->data.size()) == TensorBytes(type, companion->num_elements()));
    used_.insert(companion);
    return companion;
  }

  // What the file has decides: the flag that ties the head to the embedding is about how a model was trained.
  absl::Status MatchOutputHead() {
    const ExpectedTensor head{TensorRole::kOutputHead, -1, {spec_.vocab_size, spec_.d_model}};
    const TensorName* entry = FindEntry(head.role, head.layer);
    if (!spec_.tied_embeddings) {
      if (entry != nullptr) return MatchEntry(head, *entry);
      Warn(absl::StrCat(file_, ": there is no output head; the embedding is used, as if they were tied"));
      return absl::OkStatus();
    }
    if (entry == nullptr) return absl::OkStatus();
    const TensorView* tensor = FindTensor(NameOf(entry->pattern, -1, 0));
    const TensorView* embedding = matched_.Find(TensorRole::kTokenEmbedding, -1)->Matrix(0).tensor;
    if (tensor->type == embedding->type && tensor->shape == embedding->shape && tensor->data == embedding->data) {
      used_.insert(tensor);
      return absl::OkStatus();
    }
    Warn(absl::StrCat(file_, ": tensor ", Quote(tensor->name),
                      " differs from the embedding that it is said to be tied to; it is used as the head"));
    return MatchEntry(head, *entry);
  }

  void Warn(std::string text) { matched_.warnings_.push_back(std::move(text)); }

  const ModelSpec& spec_;
  const TensorNaming& naming_;
  const absl::Span<const TensorView> tensors_;
  const std::string& file_;
  const Fp8BlockSize fp8_block_;

  absl::flat_hash_map<absl::string_view, const TensorView*> by_name_;
  absl::flat_hash_map<std::pair<TensorRole, int32_t>, const ExpectedTensor*> expected_;
  absl::string_view prefix_;
  absl::flat_hash_set<const TensorView*> used_;
  TensorsByRole matched_;
};

absl::StatusOr<TensorsByRole> TensorsByRole::Match(const ModelSpec& spec, const TensorNaming& naming,
                                                   absl::Span<const TensorView> tensors, const std::string& file,
                                                   Fp8BlockSize fp8_block) {
  return RoleMatcher(spec, naming, tensors, file, fp8_block).Match();
}

}  // namespace sluice
