// Reading and checking the structure of a GGUF file; gguf.cc has the getters.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"
#include "engine/base/tensor_format.h"
#include "engine/io/gguf.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian and are read in place");

constexpr uint64_t kMaxStringBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxArrayElements = 100'000'000;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 63;
constexpr uint32_t kMaxDims = 4;
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMinAlignment = 8;
constexpr uint32_t kMaxAlignment = 1 << 20;
// The least a key or a tensor info takes: its name's length, one letter, and what must follow.
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr char kAlignmentKey[] = "general.alignment";

struct UnsupportedType {
  uint32_t id;
  const char* name;
};
constexpr UnsupportedType kUnsupportedTypes[] = {
    {4, "Q4_2"},     {5, "Q4_3"},   {9, "Q8_1"},    {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
    {29, "IQ1_M"},   {34, "TQ1_0"}, {35, "TQ2_0"},  {40, "NVFP4"},
};

// By id.
std::string SupportedTensorTypes() {
  std::map<int, const char*> names;
  for (const TensorFormat& row : kTensorFormats) {
    if (row.gguf_id >= 0) names.emplace(row.gguf_id, row.stored.name);
  }
  return absl::StrJoin(names, " ", [](std::string* out, const auto& name) { *out += name.second; });
}

}  // namespace

class Gguf::Parser {
 public:
  explicit Parser(Gguf* gguf) : gguf_(*gguf), bytes_(gguf->bytes_) {}

  absl::Status Run() {
    SLUICE_RETURN_IF_ERROR(Header());
    for (uint64_t i = 0; i < num_keys_; ++i) SLUICE_RETURN_IF_ERROR(Key());
    SLUICE_RETURN_IF_ERROR(Alignment());
    for (uint64_t i = 0; i < num_tensors_; ++i) SLUICE_RETURN_IF_ERROR(TensorInfo());
    return TensorData();
  }

 private:
  // A tensor as its info describes it, before the place of the data section is known.
  struct Placement {
    uint64_t info_offset = 0;  // in the file
    uint64_t data_offset = 0;  // in the data section
    uint64_t data_bytes = 0;
  };

  template <typename... Args>
  absl::Status Error(absl::StatusCode code, uint64_t offset, const absl::FormatSpec<Args...>& format,
                     const Args&... args) const {
    return absl::Status(code, absl::StrCat(gguf_.name_, ": offset ", offset, ": ", absl::StrFormat(format, args...)));
  }
  template <typename... Args>
  absl::Status Invalid(uint64_t offset, const absl::FormatSpec<Args...>& format, const Args&... args) const {
    return Error(absl::StatusCode::kInvalidArgument, offset, format, args...);
  }

  uint64_t remaining() const { return bytes_.size() - pos_; }

  // Reads a number; `what` names it in the error.
  template <typename T>
  absl::StatusOr<T> Read(absl::string_view what) {
    if (remaining() < sizeof(T)) {
      return Invalid(pos_, "%s: the file ends here; expected %d more bytes", what, sizeof(T) - remaining());
    }
    T value;
    std::memcpy(&value, bytes_.data() + pos_, sizeof(T));
    pos_ += sizeof(T);
    return value;
  }

  absl::StatusOr<absl::string_view> ReadString(absl::string_view what, uint64_t max_bytes) {
    const uint64_t start = pos_;
    SLUICE_ASSIGN_OR_RETURN(const uint64_t size, Read<uint64_t>(what));
    if (size > max_bytes) return Invalid(start, "%s: length is %d; at most %d is allowed", what, size, max_bytes);
    if (size > remaining()) return Invalid(start, "%s: length is %d, but %d bytes are left", what, size, remaining());
    const absl::string_view text(reinterpret_cast<const char*>(bytes_.data() + pos_), size);
    pos_ += size;
    return text;
  }

  absl::Status Header();
  absl::Status Key();
  absl::StatusOr<Type> ReadType(absl::string_view what);
  absl::Status ReadNumber(absl::string_view what, Value* value);
  absl::Status ReadArray(absl::string_view what, Value* value);
  absl::Status Alignment();
  absl::Status TensorInfo();
  absl::StatusOr<TensorType> ReadTensorType(absl::string_view what);
  absl::Status ReadShape(absl::string_view what, TensorView* tensor);
  absl::Status TensorData();
  absl::Status CheckOverlap() const;

  Gguf& gguf_;
  const absl::Span<const uint8_t> bytes_;
  uint64_t pos_ = 0;
  uint64_t num_keys_ = 0;
  uint64_t num_tensors_ = 0;
  uint32_t alignment_ = kDefaultAlignment;
  std::vector<Placement> placements_;  // parallel to gguf_.tensors_
};

absl::Status Gguf::Parser::Header() {
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    const absl::string_view start(reinterpret_cast<const char*>(bytes_.data()), std::min<size_t>(4, bytes_.size()));
    return Invalid(0, "not a GGUF file: it starts with %s; expected 'GGUF'", Quote(start));
  }
  pos_ = 4;
  SLUICE_ASSIGN_OR_RETURN(gguf_.version_, Read<uint32_t>("version"));
  if (gguf_.version_ != 0 && (gguf_.version_ & 0xffff) == 0) {
    return Error(absl::StatusCode::kUnimplemented, 4, "version is 0x%08x: a big-endian file; expected little-endian",
                 gguf_.version_);
  }
  if (gguf_.version_ != 2 && gguf_.version_ != 3) {
    return Error(absl::StatusCode::kUnimplemented, 4, "version is %d; expected 2 or 3", gguf_.version_);
  }
  SLUICE_ASSIGN_OR_RETURN(num_tensors_, Read<uint64_t>("tensor count"));
  SLUICE_ASSIGN_OR_RETURN(num_keys_, Read<uint64_t>("key count"));
  if (num_tensors_ > remaining() / kMinTensorInfoBytes) {
    return Invalid(8, "tensor count is %d, but the %d bytes left hold at most %d", num_tensors_, remaining(),
                   remaining() / kMinTensorInfoBytes);
  }
  if (num_keys_ > remaining() / kMinKeyBytes) {
    return Invalid(16, "key count is %d, but the %d bytes left hold at most %d", num_keys_, remaining(),
                   remaining() / kMinKeyBytes);
  }
  return absl::OkStatus();
}

absl::Status Gguf::Parser::Key() {
  const uint64_t start = pos_;
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view key, ReadString("name of a key", kMaxKeyBytes));
  if (key.empty()) return Invalid(start, "name of a key is empty");
  const std::string what = absl::StrCat("key ", Quote(key));
  Value value = {};
  SLUICE_ASSIGN_OR_RETURN(value.type, ReadType(what));
  if (value.type == Type::kArray) {
    SLUICE_RETURN_IF_ERROR(ReadArray(what, &value));
  } else if (value.type == Type::kString) {
    SLUICE_ASSIGN_OR_RETURN(const absl::string_view text, ReadString(what, kMaxStringBytes));
    value.data = reinterpret_cast<const uint8_t*>(text.data());
    value.count = text.size();
  } else {
    SLUICE_RETURN_IF_ERROR(ReadNumber(what, &value));
  }
  if (!gguf_.metadata_.try_emplace(key, value).second) return Invalid(start, "%s occurs twice", what);
  return absl::OkStatus();
}

absl::StatusOr<Gguf::Type> Gguf::Parser::ReadType(absl::string_view what) {
  SLUICE_ASSIGN_OR_RETURN(const uint32_t id, Read<uint32_t>(what));
  if (id > uint32_t(Type::kF64)) {
    return Invalid(pos_ - 4, "%s: value type is %d; expected 0 to %d", what, id, uint32_t(Type::kF64));
  }
  return Type(id);
}

absl::Status Gguf::Parser::ReadNumber(absl::string_view what, Value* value) {
  const uint64_t size = TypeBytes(value->type);
  if (size > remaining()) {
    return Invalid(pos_, "%s: %s takes %d bytes, but %d are left", what, TypeName(value->type), size, remaining());
  }
  value->data = bytes_.data() + pos_;
  value->count = 1;
  if (value->type == Type::kBool && *value->data > 1) {
    return Invalid(pos_, "%s: bool is %d; expected 0 or 1", what, *value->data);
  }
  pos_ += size;
  return absl::OkStatus();
}

absl::Status Gguf::Parser::ReadArray(absl::string_view what, Value* value) {
  const uint64_t start = pos_;
  SLUICE_ASSIGN_OR_RETURN(value->element, ReadType(what));
  if (value->element == Type::kArray) return Invalid(start, "%s: an array of arrays is not supported", what);
  SLUICE_ASSIGN_OR_RETURN(value->count, Read<uint64_t>(what));
  if (value->count > kMaxArrayElements) {
    return Invalid(start + 4, "%s: array of %d elements; at most %d are allowed", what, value->count,
                   kMaxArrayElements);
  }
  const bool strings = value->element == Type::kString;
  const uint64_t element_bytes = strings ? sizeof(uint64_t) : TypeBytes(value->element);
  if (value->count > remaining() / element_bytes) {
    return Invalid(start + 4, "%s: array of %d %s, but the %d bytes left hold at most %d", what, value->count,
                   TypeName(value->element), remaining(), remaining() / element_bytes);
  }
  value->data = bytes_.data() + pos_;
  if (!strings) {
    pos_ += value->count * element_bytes;
    return absl::OkStatus();
  }
  for (uint64_t i = 0; i < value->count; ++i) {
    SLUICE_RETURN_IF_ERROR(ReadString(what, kMaxStringBytes).status());
  }
  return absl::OkStatus();
}

absl::Status Gguf::Parser::Alignment() {
  const auto found = gguf_.metadata_.find(kAlignmentKey);
  if (found == gguf_.metadata_.end()) return absl::OkStatus();
  const Value& value = found->second;
  const uint64_t offset = value.data - bytes_.data();
  if (value.type != Type::kU32) {
    return Invalid(offset, "key %s is %s; expected u32", Quote(kAlignmentKey), TypeName(value.type));
  }
  std::memcpy(&alignment_, value.data, sizeof(alignment_));
  if (!std::has_single_bit(alignment_) || alignment_ < kMinAlignment || alignment_ > kMaxAlignment) {
    return Invalid(offset, "key %s is %d; expected a power of two from %d to %d", Quote(kAlignmentKey), alignment_,
                   kMinAlignment, kMaxAlignment);
  }
  return absl::OkStatus();
}

absl::Status Gguf::Parser::TensorInfo() {
  const uint64_t start = pos_;
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view name, ReadString("name of a tensor", kMaxTensorNameBytes));
  if (name.empty()) return Invalid(start, "name of a tensor is empty");
  const std::string what = absl::StrCat("tensor ", Quote(name));
  TensorView tensor;
  tensor.name = std::string(name);
  SLUICE_RETURN_IF_ERROR(ReadShape(what, &tensor));
  SLUICE_ASSIGN_OR_RETURN(tensor.type, ReadTensorType(what));
  Placement placement = {.info_offset = start};
  SLUICE_ASSIGN_OR_RETURN(placement.data_offset, Read<uint64_t>(what));
  if (placement.data_offset % alignment_ != 0) {
    return Invalid(pos_ - 8, "%s: data offset is %d; expected a multiple of %d", what, placement.data_offset,
                   alignment_);
  }
  const TensorTypeInfo& info = GetTensorTypeInfo(tensor.type);
  if (tensor.shape.back() % info.block_elems != 0) {
    return Invalid(start, "%s: rows of %d elements; %s needs a multiple of %d", what, tensor.shape.back(), info.name,
                   info.block_elems);
  }
  if (__builtin_mul_overflow(uint64_t(tensor.num_elements() / info.block_elems), uint64_t(info.block_bytes),
                             &placement.data_bytes)) {
    return Invalid(start, "%s: the size of %d elements of %s overflows", what, tensor.num_elements(), info.name);
  }
  if (!gguf_.tensor_index_.try_emplace(name, gguf_.tensors_.size()).second) {
    return Invalid(start, "%s occurs twice", what);
  }
  gguf_.tensors_.push_back(std::move(tensor));
  placements_.push_back(placement);
  return absl::OkStatus();
}

absl::Status Gguf::Parser::ReadShape(absl::string_view what, TensorView* tensor) {
  SLUICE_ASSIGN_OR_RETURN(const uint32_t num_dims, Read<uint32_t>(what));
  if (num_dims < 1 || num_dims > kMaxDims) {
    return Invalid(pos_ - 4, "%s has %d dimensions; expected 1 to %d", what, num_dims, kMaxDims);
  }
  tensor->shape.resize(num_dims);
  int64_t elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t dim, Read<uint64_t>(what));
    if (dim == 0) return Invalid(pos_ - 8, "%s: dimension %d is 0; expected at least 1", what, i);
    if (__builtin_mul_overflow(elements, dim, &elements)) {
      return Invalid(pos_ - 8, "%s: dimension %d is %d: the number of elements overflows", what, i, dim);
    }
    tensor->shape[num_dims - 1 - i] = int64_t(dim);
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorType> Gguf::Parser::ReadTensorType(absl::string_view what) {
  SLUICE_ASSIGN_OR_RETURN(const uint32_t id, Read<uint32_t>(what));
  for (const TensorFormat& row : kTensorFormats) {
    if (row.gguf_id >= 0 && uint32_t(row.gguf_id) == id) return row.type;
  }
  for (const UnsupportedType& t : kUnsupportedTypes) {
    if (t.id == id) {
      return Error(absl::StatusCode::kUnimplemented, pos_ - 4, "%s: type %s is not supported; expected one of %s", what,
                   t.name, SupportedTensorTypes());
    }
  }
  return Invalid(pos_ - 4, "%s: type id %d is unknown; expected one of %s", what, id, SupportedTensorTypes());
}

absl::Status Gguf::Parser::TensorData() {
  if (gguf_.tensors_.empty()) return absl::OkStatus();
  const uint64_t padding = (alignment_ - pos_ % alignment_) % alignment_;
  if (padding > remaining()) {
    return Invalid(pos_, "the file ends here; expected tensor data from offset %d", pos_ + padding);
  }
  const uint64_t data_start = pos_ + padding;
  const uint64_t data_bytes = bytes_.size() - data_start;
  for (size_t i = 0; i < placements_.size(); ++i) {
    const Placement& p = placements_[i];
    TensorView& tensor = gguf_.tensors_[i];
    if (p.data_offset > data_bytes || p.data_bytes > data_bytes - p.data_offset) {
      return Invalid(p.info_offset, "tensor %s: %d bytes at data offset %d, but the data section has %d",
                     Quote(tensor.name), p.data_bytes, p.data_offset, data_bytes);
    }
    tensor.data = bytes_.subspan(data_start + p.data_offset, p.data_bytes);
  }
  return CheckOverlap();
}

absl::Status Gguf::Parser::CheckOverlap() const {
  std::vector<uint32_t> order(placements_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [this](uint32_t a, uint32_t b) { return placements_[a].data_offset < placements_[b].data_offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Placement& before = placements_[order[i - 1]];
    const Placement& p = placements_[order[i]];
    if (before.data_bytes > p.data_offset - before.data_offset) {
      return Invalid(p.info_offset, "tensor %s at data offset %d overlaps tensor %s (%d bytes at %d)",
                     Quote(gguf_.tensors_[order[i]].name), p.data_offset, Quote(gguf_.tensors_[order[i - 1]].name),
                     before.data_bytes, before.data_offset);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Gguf> Gguf::ParsePart(absl::Span<const uint8_t> bytes, std::string name) {
  Gguf gguf;
  gguf.bytes_ = bytes;
  gguf.name_ = std::move(name);
  SLUICE_RETURN_IF_ERROR(Parser(&gguf).Run());
  return gguf;
}

absl::StatusOr<Gguf> Gguf::Parse(absl::Span<const uint8_t> bytes, std::string name) {
  SLUICE_ASSIGN_OR_RETURN(Gguf gguf, ParsePart(bytes, std::move(name)));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<uint64_t> count, gguf.FindUint("split.count"));
  if (count.value_or(1) <= 1) return gguf;
  return absl::UnimplementedError(absl::StrCat(gguf.name_, ": key 'split.count' is ", *count,
                                               ": one of several parts of a model; expected a whole one"));
}

}  // namespace sluice
