#include "engine/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/base/tensor_format.h"
#include "engine/io/strict_json.h"

namespace sluice {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxTensors = 1'000'000;
constexpr size_t kMaxDims = 8;
constexpr uint64_t kMaxInt64 = uint64_t{std::numeric_limits<int64_t>::max()};

std::optional<TensorType> FindType(absl::string_view name) {
  for (const TensorFormat& row : kTensorFormats) {
    if (row.in_safetensors && name == row.stored.name) return row.type;
  }
  return std::nullopt;
}

std::string KnownTypes() {
  std::string names;
  for (const TensorFormat& row : kTensorFormats) {
    if (row.in_safetensors) absl::StrAppend(&names, names.empty() ? "" : ", ", row.stored.name);
  }
  return names;
}

std::string ListText(absl::Span<const int64_t> numbers) { return absl::StrCat("[", absl::StrJoin(numbers, ", "), "]"); }

// Bytes of a tensor; nothing if a product on the way does not fit, or if the elements do not fill whole bytes. A
// dimension of 0 does not excuse the others: somebody may multiply them in another order.
std::optional<uint64_t> CheckedBytes(TensorType type, absl::Span<const int64_t> shape) {
  const TensorTypeInfo& info = GetTensorTypeInfo(type);
  const uint64_t max_elements = kMaxInt64 / uint64_t(info.block_bytes);
  uint64_t elements = 1;
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim == 0) {
      empty = true;
    } else if (uint64_t(dim) > max_elements / elements) {
      return std::nullopt;
    } else {
      elements *= uint64_t(dim);
    }
  }
  if (empty) return 0;
  if (elements % uint64_t(info.block_elems) != 0) return std::nullopt;
  return elements / uint64_t(info.block_elems) * uint64_t(info.block_bytes);
}

// Turns the header into tensors whose data is where the header says, each inside `data`.
class HeaderReader : public StrictJson {
 public:
  HeaderReader(const std::string& name, absl::Span<const uint8_t> data) : StrictJson(name, kLengthBytes), data_(data) {}

  std::vector<TensorView> TakeTensors() { return std::move(tensors_); }

  bool start_object(size_t) override {
    switch (in_) {
      case In::kFile:
        in_ = In::kHeader;
        return true;
      case In::kHeader:
        in_ = is_metadata_ ? In::kMetadata : In::kTensor;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(std::string& key) override {
    switch (in_) {
      case In::kHeader:
        return TopKey(key);
      case In::kMetadata:
        return metadata_keys_.insert(key).second || Refuse(absl::StrCat("key ", Quote(key), " occurs twice"));
      default:
        return TensorKey(key);
    }
  }

  bool end_object() override {
    if (in_ == In::kHeader) {
      in_ = In::kFile;
      return true;
    }
    if (in_ == In::kTensor && !FinishTensor()) return false;
    in_ = In::kHeader;
    return true;
  }

  bool string(std::string& value) override {
    if (in_ == In::kMetadata) return true;
    if (in_ != In::kTensor || field_ != Field::kType) return Unexpected(Quote(value));
    const std::optional<TensorType> type = FindType(value);
    if (!type.has_value()) {
      return Refuse(absl::UnimplementedError(absl::StrCat(name(), ": ", Where(), ": dtype ", Quote(value),
                                                          " is not supported; expected one of ", KnownTypes())));
    }
    tensors_.back().type = *type;
    return true;
  }

  bool start_array(size_t) override {
    if (in_ != In::kTensor || field_ == Field::kType) return Unexpected("a list");
    in_ = In::kList;
    return true;
  }
  bool end_array() override {
    in_ = In::kTensor;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (in_ != In::kList || value > kMaxInt64) return Unexpected(absl::StrCat(value));
    std::vector<int64_t>& list = field_ == Field::kShape ? tensors_.back().shape : offsets_;
    const size_t limit = field_ == Field::kShape ? kMaxDims : 2;
    if (list.size() == limit) {
      return Refuse(field_ == Field::kShape ? absl::StrCat("shape has more than ", kMaxDims, " dimensions")
                                            : "data_offsets has more than 2 numbers");
    }
    list.push_back(int64_t(value));
    return true;
  }

 protected:
  std::string Where() const override {
    if (in_ == In::kFile) return "header";
    if (is_metadata_) return "__metadata__";
    return tensors_.empty() ? "header" : absl::StrCat("tensor ", Quote(tensors_.back().name));
  }

  std::string Expected() const override {
    switch (in_) {
      case In::kFile:
      case In::kHeader:
        return "an object";
      case In::kMetadata:
        return "a string";
      case In::kList:
        return absl::StrCat("integers from 0 to 2^63 - 1 in ", field_ == Field::kShape ? "shape" : "data_offsets");
      case In::kTensor:
        break;
    }
    if (field_ == Field::kType) return "a string as dtype";
    return absl::StrCat("a list as ", field_ == Field::kShape ? "shape" : "data_offsets");
  }

 private:
  enum class In { kFile, kHeader, kMetadata, kTensor, kList };
  enum class Field : unsigned { kType = 1, kShape = 2, kOffsets = 4 };
  static constexpr unsigned kAllFields = 7;

  bool TopKey(const std::string& key) {
    is_metadata_ = key == "__metadata__";
    if (is_metadata_) {
      if (std::exchange(had_metadata_, true)) return Refuse("occurs twice");
      return true;
    }
    if (tensors_.size() == kMaxTensors) {
      return Refuse(absl::InvalidArgumentError(absl::StrCat(name(), ": more than ", kMaxTensors, " tensors")));
    }
    tensors_.emplace_back().name = key;
    offsets_.clear();
    fields_ = 0;
    return true;
  }

  bool TensorKey(absl::string_view key) {
    if (key == "dtype") {
      field_ = Field::kType;
    } else if (key == "shape") {
      field_ = Field::kShape;
    } else if (key == "data_offsets") {
      field_ = Field::kOffsets;
    } else {
      return Refuse(absl::StrCat("key ", Quote(key), " is not known; expected dtype, shape and data_offsets"));
    }
    if ((fields_ & unsigned(field_)) != 0) return Refuse(absl::StrCat("key ", Quote(key), " occurs twice"));
    fields_ |= unsigned(field_);
    return true;
  }

  bool FinishTensor() {
    TensorView& tensor = tensors_.back();
    if (fields_ != kAllFields) return Refuse("dtype, shape or data_offsets is missing; expected all three");
    if (offsets_.size() != 2)
      return Refuse(absl::StrCat("data_offsets is ", ListText(offsets_), "; expected 2 numbers"));
    const uint64_t begin = uint64_t(offsets_[0]), end = uint64_t(offsets_[1]);
    if (begin > end || end > data_.size()) {
      return Refuse(absl::StrCat("data_offsets is ", ListText(offsets_), "; expected a range within the ", data_.size(),
                                 " bytes of data in the file"));
    }
    const std::optional<uint64_t> bytes = CheckedBytes(tensor.type, tensor.shape);
    if (bytes != end - begin) {
      return Refuse(
          absl::StrCat("shape ", ListText(tensor.shape), " of ", TensorTypeName(tensor.type), " takes ",
                       bytes.has_value() ? absl::StrCat(*bytes, " bytes") : "no whole or too large a number of bytes",
                       ", but data_offsets ", ListText(offsets_), " hold ", end - begin));
    }
    tensor.data = absl::MakeConstSpan(data_.data() + begin, end - begin);
    return true;
  }

  const absl::Span<const uint8_t> data_;
  std::vector<TensorView> tensors_;
  In in_ = In::kFile;
  bool is_metadata_ = false, had_metadata_ = false;
  absl::flat_hash_set<std::string> metadata_keys_;
  // Of the tensor being read.
  std::vector<int64_t> offsets_;
  unsigned fields_ = 0;  // those seen
  Field field_ = Field::kType;
};

// Sorted by their bytes, the tensors fill `data` and name nothing twice.
absl::Status CheckLayout(const std::string& name, absl::Span<const uint8_t> data,
                         absl::Span<const TensorView> tensors) {
  const uint8_t* next = data.data();
  for (const TensorView& tensor : tensors) {
    if (tensor.data.data() != next) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": tensor ", Quote(tensor.name), ": data starts at ",
                                                     tensor.data.data() - data.data(), "; expected it at ",
                                                     next - data.data(), ", where the tensor before it ends"));
    }
    next += tensor.data.size();
  }
  if (next != data.data() + data.size()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the tensors end at ", next - data.data(),
                                                   " of the data; expected them to fill its ", data.size(), " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Safetensors> Safetensors::Open(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  SLUICE_ASSIGN_OR_RETURN(Safetensors result, Parse(file.bytes(), path));
  result.file_ = std::move(file);
  return result;
}

absl::StatusOr<Safetensors> Safetensors::Parse(absl::Span<const uint8_t> bytes, std::string name) {
  const auto invalid = [&](absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", problem));
  };
  uint64_t length;
  if (bytes.size() < sizeof(length)) {
    return invalid(absl::StrCat("not a safetensors file: it has ", bytes.size(), " bytes; expected at least 10"));
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kMaxHeaderBytes || length > bytes.size() - kLengthBytes) {
    return invalid(absl::StrCat("header length is ", length, "; expected at most ",
                                std::min<uint64_t>(kMaxHeaderBytes, bytes.size() - kLengthBytes),
                                bytes.size() - kLengthBytes < kMaxHeaderBytes ? ", what is left of the file" : ""));
  }
  const absl::Span<const uint8_t> data = bytes.subspan(kLengthBytes + length);
  HeaderReader reader(name, data);
  SLUICE_RETURN_IF_ERROR(
      reader.Read(absl::string_view(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length)));

  Safetensors result;
  result.tensors_ = reader.TakeTensors();
  std::sort(result.tensors_.begin(), result.tensors_.end(), [](const TensorView& a, const TensorView& b) {
    // Those without bytes come first where they share an offset.
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  SLUICE_RETURN_IF_ERROR(CheckLayout(name, data, result.tensors_));
  result.tensor_index_.reserve(result.tensors_.size());
  for (size_t i = 0; i < result.tensors_.size(); ++i) {
    if (!result.tensor_index_.emplace(result.tensors_[i].name, i).second) {
      return invalid(absl::StrCat("tensor ", Quote(result.tensors_[i].name), " occurs twice"));
    }
  }
  result.name_ = std::move(name);
  return result;
}

const TensorView* Safetensors::FindTensor(absl::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace sluice
