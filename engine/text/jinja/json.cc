#include "engine/text/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/parse_json.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/big_int.h"
#include "engine/text/jinja/python_format.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

// Builds values while nlohmann's parser, which neither recurses nor throws in this mode, walks the text.
class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonReader(absl::string_view text, Origin origin, Heap& heap) : text_(text), origin_(origin), heap_(heap) {}

  bool null() override { return Add(Value::None().WithOrigin(origin_)); }
  bool boolean(bool b) override { return Add(Value::Bool(b).WithOrigin(origin_)); }
  bool number_integer(int64_t i) override { return Add(Value::Int(i).WithOrigin(origin_)); }
  bool number_unsigned(uint64_t u) override {
    if (u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return Add(heap_.NewBigInt(absl::StrCat(u), origin_));
    return Add(Value::Int(static_cast<int64_t>(u)).WithOrigin(origin_));
  }
  bool number_float(double d, const std::string& digits) override {
    // The parser also calls this for integers that fit nowhere.
    if (digits.find_first_of(".eE") == std::string::npos) return Add(NewInteger(digits));
    return Add(Value::Float(d).WithOrigin(origin_));
  }
  bool string(std::string& s) override { return Add(heap_.NewString(s, origin_)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override {
    absl::StatusOr<Value> dict = heap_.NewDict();
    if (dict.ok()) dict->AsDict().Freeze();
    return Open(std::move(dict));
  }
  bool start_array(size_t) override {
    absl::StatusOr<Value> list = heap_.NewList({});
    if (list.ok()) list->AsList().frozen = true;
    return Open(std::move(list));
  }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& s) override {
    auto key = heap_.NewString(s, origin_);
    status_ = key.status();
    if (key.ok()) open_.back().key = *key;
    return key.ok();
  }
  bool parse_error(size_t position, const std::string& token, const nlohmann::json::exception& error) override {
    // Counted from 1.
    if (status_.ok()) status_ = Problem(position - 1, absl::StrCat("not valid JSON: ", JsonProblem(error, token)));
    return false;
  }

  const absl::Status& status() const { return status_; }
  const Value& root() const { return root_; }

 private:
  struct Container {
    Value value;
    Value key;  // of a dict's next entry
  };

  absl::StatusOr<Value> NewInteger(const std::string& digits) {
    SLUICE_RETURN_IF_ERROR(heap_.budget().Scan(digits.size()));
    return ParseInteger(digits, 10, origin_, heap_);
  }

  bool Add(absl::StatusOr<Value> value) {
    status_ = value.status();
    if (!status_.ok()) return false;
    if (open_.empty()) {
      root_ = *value;
    } else if (Container& parent = open_.back(); parent.value.is(Kind::kDict)) {
      status_ = heap_.SetItem(parent.value.AsDict(), parent.key, *value);
    } else {
      status_ = heap_.AppendItem(parent.value.AsList(), *value);
    }
    return status_.ok();
  }
  bool Open(absl::StatusOr<Value> container) {
    if (!Add(container)) return false;
    const int limit = heap_.budget().limits().max_nesting;
    if (static_cast<int>(open_.size()) >= limit) {
      status_ = Problem(PlaceOfNesting(limit + 1), absl::StrCat("JSON nests deeper than ", limit, " levels"));
      return false;
    }
    open_.push_back({*container, Value()});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  absl::Status Problem(size_t offset, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(LineAndColumn(text_, offset), ": ", what));
  }
  // Of the bracket that opens the level `depth`; the parser does not tell. REQUIRES: what stands before it is JSON
  size_t PlaceOfNesting(int depth) const {
    bool in_string = false;
    for (size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (in_string && c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = !in_string;
      } else if (!in_string && (c == '[' || c == '{')) {
        if (--depth == 0) return i;
      } else if (!in_string && (c == ']' || c == '}')) {
        ++depth;
      }
    }
    return text_.size();
  }

  const absl::string_view text_;
  const Origin origin_;
  Heap& heap_;
  std::vector<Container> open_;
  Value root_;
  absl::Status status_;
};

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Heap& heap, TextBuilder& out) : style_(style), heap_(heap), out_(out) {}

  absl::Status Write(const Value& value, int level) {
    DepthGuard guard(heap_.budget());
    SLUICE_RETURN_IF_ERROR(guard.status());
    SLUICE_RETURN_IF_ERROR(heap_.budget().Spend(1));
    switch (value.kind()) {
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kBigInt:
      case Kind::kFloat:
        WriteScalar(value);
        break;
      case Kind::kString:
        WriteString(value.AsText());
        break;
      case Kind::kDict:
        return WriteDict(value.AsDict(), level);
      case Kind::kList:
        if (value.AsList().kind <= ListKind::kGroup) return WriteList(value.AsList(), level);
        [[fallthrough]];
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("tojson: a value of type ", TypeName(value), " has no JSON form"));
    }
    return out_.status();
  }

 private:
  void Plain(absl::string_view text) { out_.Append(text, Origin::kTemplate); }

  void WriteScalar(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        out_.Append("null", value.origin());
        break;
      case Kind::kBool:
        out_.Append(value.AsBool() ? "true" : "false", value.origin());
        break;
      case Kind::kInt:
        out_.Append(absl::StrCat(value.AsInt()), value.origin());
        break;
      case Kind::kBigInt:
        out_.Append(value.AsText());
        break;
      default: {
        const double d = value.AsFloat();
        const std::string text = std::isnan(d)   ? "NaN"
                                 : std::isinf(d) ? (d < 0 ? "-Infinity" : "Infinity")
                                                 : FormatFloat(d);
        out_.Append(text, value.origin());
      }
    }
  }

  void WriteString(const Text& text) {
    const absl::string_view s = text.bytes;
    Plain("\"");
    size_t plain = 0;  // [plain, pos) goes out unchanged
    for (size_t pos = 0, length; pos < s.size() && out_.status().ok(); pos += length) {
      length = CharLength(s, pos);
      const char32_t c = CharAt(s, pos);
      if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7F || !style_.ensure_ascii)) continue;
      out_.Append(TextSlice{&text, plain, pos});
      out_.Append(Escape(c), text.OriginAt(pos));
      plain = pos + length;
    }
    out_.Append(TextSlice{&text, plain, s.size()});
    Plain("\"");
  }

  static std::string Escape(char32_t c) {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      case 0x7F:
        return "\x7F";
      default:
        break;
    }
    if (c < 0x10000) return absl::StrFormat("\\u%04x", static_cast<unsigned>(c));
    const auto rest = static_cast<unsigned>(c - 0x10000);
    return absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }

  void NewLine(int level) {
    if (!style_.pretty) return;
    Plain("\n");
    for (int i = 0; i < level && out_.status().ok(); ++i) out_.Append(style_.indent);
  }

  absl::Status WriteList(const List& list, int level) {
    Plain("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine(level + 1);
      SLUICE_RETURN_IF_ERROR(Write(list.items[i], level + 1));
    }
    if (!list.items.empty()) NewLine(level);
    Plain("]");
    return out_.status();
  }

  absl::Status WriteDict(const Dict& dict, int level) {
    std::vector<Dict::Entry> sorted;
    if (style_.sort_keys) {
      SLUICE_RETURN_IF_ERROR(heap_.budget().Visit(dict.size()));
      sorted = dict.entries();
      for (const Dict::Entry& entry : sorted) {
        if (!entry.key.is(Kind::kString))
          return absl::InvalidArgumentError("tojson: sort_keys wants keys that are strings");
      }
      std::stable_sort(sorted.begin(), sorted.end(),
                       [](const auto& a, const auto& b) { return a.key.AsView() < b.key.AsView(); });
    }
    Plain("{");
    bool first = true;
    for (const Dict::Entry& entry : style_.sort_keys ? sorted : dict.entries()) {
      if (!first) out_.Append(style_.item_separator);
      first = false;
      NewLine(level + 1);
      SLUICE_RETURN_IF_ERROR(WriteKey(entry.key));
      out_.Append(style_.key_separator);
      SLUICE_RETURN_IF_ERROR(Write(entry.value, level + 1));
    }
    if (!first) NewLine(level);
    Plain("}");
    return out_.status();
  }

  absl::Status WriteKey(const Value& key) {
    if (key.is(Kind::kString)) {
      WriteString(key.AsText());
    } else if (key.is(Kind::kUndefined)) {
      return absl::InvalidArgumentError("tojson: a dict has an undefined key");
    } else {
      Plain("\"");
      WriteScalar(key);
      Plain("\"");
    }
    return out_.status();
  }

  const JsonStyle& style_;
  Heap& heap_;
  TextBuilder& out_;
};

}  // namespace

absl::StatusOr<Value> FromJson(absl::string_view json, Origin origin, Heap& heap) {
  // The parser would take it for the end.
  if (const size_t zero = json.find('\0'); zero != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(LineAndColumn(json, zero), ": found a zero byte, expected JSON"));
  }
  JsonReader reader(json, origin, heap);
  const bool complete = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  SLUICE_RETURN_IF_ERROR(reader.status());
  if (!complete) return absl::InvalidArgumentError("not JSON");
  return reader.root();
}

absl::Status ToJson(const Value& value, const JsonStyle& style, Heap& heap, TextBuilder& out) {
  return JsonWriter(style, heap, out).Write(value, 0);
}

}  // namespace sluice::jinja
