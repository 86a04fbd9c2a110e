#include "server/wire_scan.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/text/utf8.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "server/calls/status.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// UTF-8 that comes in pieces, which may part a character.
class Utf8Check {
 public:
  // False once a byte is found that cannot belong to a character.
  bool Push(absl::string_view piece) {
    while (!begun_.empty() && !piece.empty()) {
      begun_.push_back(piece.front());
      piece.remove_prefix(1);
      if (begun_.size() < Utf8Length(begun_.front())) continue;
      if (FindInvalidUtf8(begun_) != absl::string_view::npos) return false;
      begun_.clear();
    }
    const size_t invalid = FindInvalidUtf8(piece);
    if (invalid == absl::string_view::npos) return true;
    begun_ = std::string(piece.substr(invalid));
    return begun_.size() < Utf8Length(begun_.front());
  }
  bool Complete() const { return begun_.empty(); }

 private:
  std::string begun_;  // a character of which bytes are missing, not yet known to be one
};

class Scanner {
 public:
  Scanner(google::protobuf::io::ZeroCopyInputStream* in, int64_t num_bytes, int64_t max_elements, WireSize* size)
      : in_(in), max_elements_(max_elements), size_(*size) {
    in_.PushLimit(int(num_bytes));  // so that no read comes to the end of the stream before it comes to a limit
  }

  // The fields of one message up to the limit, or of the group `group` up to its end. `type` is null in a group: no
  // message of ours has one.
  absl::Status Message(const Descriptor* type, int group) {
    if (int(path_.size()) > kMaxWireDepth) {
      return Malformed(absl::StrCat("found more than ", kMaxWireDepth, " messages inside each other"));
    }
    absl::InlinedVector<std::pair<const FieldDescriptor*, int>, 4> counts;
    while (true) {
      const uint32_t tag = in_.ReadTag();
      if (tag == 0) {
        if (group == 0 && in_.ConsumedEntireMessage()) return absl::OkStatus();
        return Malformed("found a broken or missing tag");
      }
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const WireFormatLite::WireType wire_type = WireFormatLite::GetTagWireType(tag);
      if (number == 0) return Malformed("found field number 0");
      if (wire_type == WireFormatLite::WIRETYPE_END_GROUP) {
        if (group == number) return absl::OkStatus();
        return Malformed("found the end of a group that has not begun");
      }
      const FieldDescriptor* field = type == nullptr ? nullptr : type->FindFieldByNumber(number);
      int index = 0;
      if (field != nullptr && field->is_repeated()) {
        auto it = std::find_if(counts.begin(), counts.end(), [&](const auto& count) { return count.first == field; });
        if (it == counts.end()) it = counts.insert(it, {field, 0});
        index = it->second++;
      }
      path_.push_back({field, index});
      SLUICE_RETURN_IF_ERROR(Field(field, number, wire_type));
      path_.pop_back();
    }
  }

 private:
  struct Step {
    const FieldDescriptor* field;  // null: not known
    int index;
  };

  absl::Status Field(const FieldDescriptor* field, int number, WireFormatLite::WireType wire_type) {
    // Of another wire type than declared, a field is to protobuf one that it does not know; lists of numbers come packed
    // or one by one.
    const bool packable = field != nullptr && field->is_repeated() && field->is_packable();
    const bool known = field != nullptr && (wire_type == WireFormatLite::WireTypeForFieldType(
                                                             WireFormatLite::FieldType(field->type())) ||
                                            (packable && wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    if (known && wire_type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (field->is_repeated()) ++size_.numbers;
      return Number(wire_type);
    }
    if (!known || !packable) SLUICE_RETURN_IF_ERROR(Count());
    switch (wire_type) {
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        break;
      case WireFormatLite::WIRETYPE_START_GROUP:
        return Message(nullptr, number);
      default:
        return Number(wire_type);
    }
    int length = 0;
    if (!in_.ReadVarintSizeAsInt(&length)) return Malformed("found a broken length");
    if (length > in_.BytesUntilLimit()) {
      return Malformed(absl::StrCat("found a length of ", length, " bytes with ", in_.BytesUntilLimit(), " left"));
    }
    if (!known) return Skip(length);
    if (packable) return Packed(*field, length);
    if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
      const auto limit = in_.PushLimit(length);
      SLUICE_RETURN_IF_ERROR(Message(field->message_type(), 0));
      in_.PopLimit(limit);
      return absl::OkStatus();
    }
    return field->type() == FieldDescriptor::TYPE_STRING ? Text(length) : Skip(length);
  }

  absl::Status Number(WireFormatLite::WireType wire_type) {
    uint64_t value = 0;
    uint32_t low = 0;
    switch (wire_type) {
      case WireFormatLite::WIRETYPE_VARINT:
        return in_.ReadVarint64(&value) ? absl::OkStatus() : Malformed("found a broken number");
      case WireFormatLite::WIRETYPE_FIXED64:
        return in_.ReadLittleEndian64(&value) ? absl::OkStatus() : Malformed("found a cut number");
      case WireFormatLite::WIRETYPE_FIXED32:
        return in_.ReadLittleEndian32(&low) ? absl::OkStatus() : Malformed("found a cut number");
      default:
        return Malformed(absl::StrCat("found wire type ", int(wire_type), ", which does not exist"));
    }
  }

  absl::Status Packed(const FieldDescriptor& field, int length) {
    const auto limit = in_.PushLimit(length);
    const auto wire_type = WireFormatLite::WireTypeForFieldType(WireFormatLite::FieldType(field.type()));
    while (in_.BytesUntilLimit() > 0) {
      SLUICE_RETURN_IF_ERROR(Number(wire_type));
      ++size_.numbers;
    }
    in_.PopLimit(limit);
    return absl::OkStatus();
  }

  absl::Status Text(int length) {
    Utf8Check check;
    while (length > 0) {
      const void* data = nullptr;
      int num_bytes = 0;
      if (!in_.GetDirectBufferPointer(&data, &num_bytes)) return Malformed("found a cut text");
      num_bytes = std::min(num_bytes, length);
      if (!check.Push({static_cast<const char*>(data), size_t(num_bytes)})) return NotUtf8();
      in_.Skip(num_bytes);
      length -= num_bytes;
    }
    return check.Complete() ? absl::OkStatus() : NotUtf8();
  }

  absl::Status Skip(int length) { return in_.Skip(length) ? absl::OkStatus() : Malformed("found a cut field"); }

  absl::Status Count() {
    if (++size_.elements <= max_elements_) return absl::OkStatus();
    return CallError(absl::StatusCode::kResourceExhausted, kReasonRequestTooLarge,
                     absl::StrCat("the request holds more than ", max_elements_,
                                  " messages, texts, map entries and unknown fields; send less"));
  }

  absl::Status NotUtf8() const { return Malformed("found bytes that are not UTF-8, expected a text"); }

  // `description` of the innermost field that has a name.
  absl::Status Malformed(absl::string_view description) const {
    std::string name;
    for (const Step& step : path_) {
      if (step.field == nullptr) break;
      // What an entry of a map is made of is no field of the request.
      if (step.field->containing_type()->options().map_entry()) break;
      absl::StrAppend(&name, name.empty() ? "" : ".", step.field->name());
      if (step.field->is_repeated() && !step.field->is_map() && !step.field->is_packable()) {
        absl::StrAppend(&name, "[", step.index, "]");
      }
    }
    constexpr size_t kMaxName = 200;
    if (name.size() > kMaxName) name = name.substr(0, kMaxName) + "...";
    if (!name.empty()) return InvalidField(name, description, kReasonMalformedRequest);
    return CallError(absl::StatusCode::kInvalidArgument, kReasonMalformedRequest,
                     absl::StrCat("the request is not a message of its type: ", description));
  }

  google::protobuf::io::CodedInputStream in_;
  const int64_t max_elements_;
  WireSize& size_;
  std::vector<Step> path_;  // to the field that is being read
};

}  // namespace

absl::Status ScanWire(google::protobuf::io::ZeroCopyInputStream* in, int64_t num_bytes, const Descriptor* type,
                      int64_t max_elements, WireSize* size) {
  return Scanner(in, num_bytes, max_elements, size).Message(type, 0);
}

}  // namespace sluice
