#include "engine/text/jinja/python_format.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

void AppendStringRepr(const Text& text, bool ascii, TextBuilder& out) {
  const absl::string_view s = text.bytes;
  const char quote = absl::StrContains(s, "'") && !absl::StrContains(s, "\"") ? '"' : '\'';
  const absl::string_view quote_text(&quote, 1);
  out.Append(quote_text, Origin::kTemplate);
  size_t plain = 0;  // [plain, pos) goes out unchanged
  for (size_t pos = 0, length; pos < s.size() && out.status().ok(); pos += length) {
    length = CharLength(s, pos);
    const char32_t c = CharAt(s, pos);
    std::string escaped;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      escaped = {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      escaped = "\\n";
    } else if (c == '\r') {
      escaped = "\\r";
    } else if (c == '\t') {
      escaped = "\\t";
    } else if (IsPrintable(c) && (c < 0x80 || !ascii)) {
      continue;
    } else if (c < 0x100) {
      escaped = absl::StrFormat("\\x%02x", static_cast<unsigned>(c));
    } else if (c < 0x10000) {
      escaped = absl::StrFormat("\\u%04x", static_cast<unsigned>(c));
    } else {
      escaped = absl::StrFormat("\\U%08x", static_cast<unsigned>(c));
    }
    out.Append(TextSlice{&text, plain, pos});
    out.Append(escaped, text.OriginAt(pos));
    plain = pos + length;
  }
  out.Append(TextSlice{&text, plain, s.size()});
  out.Append(quote_text, Origin::kTemplate);
}

absl::Status AppendItems(const std::vector<Value>& items, bool ascii, Heap& heap, TextBuilder& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(", ", Origin::kTemplate);
    SLUICE_RETURN_IF_ERROR(AppendRepr(items[i], heap, out, ascii));
  }
  return out.status();
}

absl::Status AppendListRepr(const List& list, bool ascii, Heap& heap, TextBuilder& out) {
  switch (list.kind) {
    case ListKind::kList:
      break;
    case ListKind::kTuple:
    case ListKind::kGroup:
      out.Append("(", Origin::kTemplate);
      SLUICE_RETURN_IF_ERROR(AppendItems(list.items, ascii, heap, out));
      out.Append(list.items.size() == 1 ? ",)" : ")", Origin::kTemplate);
      return out.status();
    case ListKind::kIterator:
      return absl::InvalidArgumentError("a generator has no text; make a list of it first");
    default:
      out.Append(absl::StrCat(TypeName(Value::Of(const_cast<List*>(&list))), "("), Origin::kTemplate);
  }
  out.Append("[", Origin::kTemplate);
  SLUICE_RETURN_IF_ERROR(AppendItems(list.items, ascii, heap, out));
  out.Append(list.kind == ListKind::kList ? "]" : "])", Origin::kTemplate);
  return out.status();
}

absl::Status AppendDictRepr(const Dict& dict, bool ascii, Heap& heap, TextBuilder& out) {
  out.Append("{", Origin::kTemplate);
  bool first = true;
  for (const Dict::Entry& entry : dict.entries()) {
    if (!first) out.Append(", ", Origin::kTemplate);
    first = false;
    SLUICE_RETURN_IF_ERROR(AppendRepr(entry.key, heap, out, ascii));
    out.Append(": ", Origin::kTemplate);
    SLUICE_RETURN_IF_ERROR(AppendRepr(entry.value, heap, out, ascii));
  }
  out.Append("}", Origin::kTemplate);
  return out.status();
}

}  // namespace

std::string FormatFloat(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific);
  const absl::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));  // [-]d[.ddd]e[+-]xx
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const bool negative = text[0] == '-';
  std::string digits(text.substr(negative ? 1 : 0, e - (negative ? 1 : 0)));
  if (digits.size() > 1) digits.erase(1, 1);  // the point
  const std::string sign = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = digits.size() > 1 ? absl::StrCat(".", digits.substr(1)) : std::string();
    return absl::StrFormat("%s%c%se%c%02d", sign, digits[0], fraction, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return absl::StrCat(sign, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return absl::StrCat(sign, digits, std::string(whole - digits.size(), '0'), ".0");
  return absl::StrCat(sign, digits.substr(0, whole), ".", digits.substr(whole));
}

absl::Status AppendRepr(const Value& value, Heap& heap, TextBuilder& out, bool ascii) {
  DepthGuard guard(heap.budget());
  SLUICE_RETURN_IF_ERROR(guard.status());
  SLUICE_RETURN_IF_ERROR(heap.budget().Spend(1));
  switch (value.kind()) {
    case Kind::kUndefined:
      out.Append("Undefined", Origin::kTemplate);
      break;
    case Kind::kNone:
      out.Append("None", value.origin());
      break;
    case Kind::kBool:
      out.Append(value.AsBool() ? "True" : "False", value.origin());
      break;
    case Kind::kInt:
      out.Append(absl::StrCat(value.AsInt()), value.origin());
      break;
    case Kind::kBigInt:
      out.Append(value.AsText());
      break;
    case Kind::kFloat:
      out.Append(FormatFloat(value.AsFloat()), value.origin());
      break;
    case Kind::kString:
      if (value.is_markup()) out.Append("Markup(", Origin::kTemplate);
      AppendStringRepr(value.AsText(), ascii, out);
      if (value.is_markup()) out.Append(")", Origin::kTemplate);
      break;
    case Kind::kList:
      return AppendListRepr(value.AsList(), ascii, heap, out);
    case Kind::kDict:
      return AppendDictRepr(value.AsDict(), ascii, heap, out);
    case Kind::kNamespace:
      out.Append("<Namespace ", Origin::kTemplate);
      SLUICE_RETURN_IF_ERROR(AppendDictRepr(value.AsDict(), ascii, heap, out));
      out.Append(">", Origin::kTemplate);
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("a ", TypeName(value), " has no text to print"));
  }
  return out.status();
}

absl::Status AppendStr(const Value& value, Heap& heap, TextBuilder& out) {
  if (value.is(Kind::kUndefined)) return absl::OkStatus();
  if (!value.is(Kind::kString)) return AppendRepr(value, heap, out);
  out.Append(value.AsText());
  return out.status();
}

absl::StatusOr<Value> ToStr(const Value& value, Heap& heap) {
  if (value.is(Kind::kString)) return value;
  TextBuilder out(heap.budget());
  SLUICE_RETURN_IF_ERROR(AppendStr(value, heap, out));
  return heap.NewString(std::move(out));
}

}  // namespace sluice::jinja
