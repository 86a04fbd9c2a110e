// Filters that give text: upper, trim, replace, tojson, ...
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/format.h"
#include "engine/text/jinja/json.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_format.h"
#include "engine/text/jinja/strings.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

using Result = absl::StatusOr<Value>;

absl::Status WantsText(absl::string_view filter, const Value& found) {
  if (found.is(Kind::kUndefined)) return UndefinedError(found);
  return absl::InvalidArgumentError(absl::StrCat(filter, " wants a string, found ", TypeName(found)));
}

absl::StatusOr<int64_t> Integer(const Invocation& call, size_t i, int64_t otherwise, absl::string_view what) {
  if (!Given(call, i)) return otherwise;
  if (!call.args[i]->IsInteger()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " wants an integer, found ", TypeName(*call.args[i])));
  }
  return call.args[i]->AsInt();
}

Result Safe(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  return text.AsMarkup();
}
Result String(const Invocation& call) { return ToStr(call.self, call.heap()); }

Result Trim(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  std::optional<absl::string_view> chars;
  if (Given(call, 0)) {
    if (!call.args[0]->is(Kind::kString)) return absl::InvalidArgumentError("trim wants a string of characters");
    chars = call.args[0]->AsView();
  }
  SLUICE_ASSIGN_OR_RETURN(const TextSlice rest, Strip(text.AsText(), chars, Side::kBoth, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value trimmed, call.heap().NewString(rest));
  return trimmed.MarkupLike(text);
}

template <Case to>
Result InCase(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value changed, ChangeCase(text.AsText(), to, call.heap()));
  return to == Case::kWords ? changed : changed.MarkupLike(text);
}

Result ReplaceFilter(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value from, ToStr(*call.args[0], call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value to, ToStr(*call.args[1], call.heap()));
  int64_t limit = -1;
  if (Given(call, 2)) {
    if (!call.args[2]->IsInteger()) return absl::InvalidArgumentError("replace wants an integer as its count");
    limit = call.args[2]->AsInt();
  }
  return Replace(text.AsText(), from.AsText(), to.AsText(), limit, call.heap());
}

// A width in spaces, or the indentation itself.
absl::StatusOr<Text> Indentation(const Value* width, int64_t otherwise, Heap& heap) {
  TextBuilder out(heap.budget());
  if (width != nullptr && width->is(Kind::kString)) {
    out.Append(width->AsText());
  } else if (width != nullptr && !width->IsInteger()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an indentation is an integer or a string, found ", TypeName(*width)));
  } else {
    const int64_t spaces = std::max<int64_t>(width != nullptr ? width->AsInt() : otherwise, 0);
    SLUICE_RETURN_IF_ERROR(heap.budget().Visit(static_cast<size_t>(spaces)));
    for (int64_t i = 0; i < spaces && out.status().ok(); ++i) out.Append(" ", Origin::kTemplate);
  }
  return std::move(out).Finish();
}

Result IndentFilter(const Invocation& call) {
  if (!call.self.is(Kind::kString)) return WantsText("indent", call.self);
  SLUICE_ASSIGN_OR_RETURN(const Text indentation, Indentation(call.args[0], 4, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value indented,
                          Indent(call.self.AsText(), indentation, Flag(call, 1), Flag(call, 2), call.heap()));
  return indented.MarkupLike(call.self);
}

Result ToJsonFilter(const Invocation& call) {
  JsonStyle style;
  style.ensure_ascii = Flag(call, 0);
  style.sort_keys = Flag(call, 3);
  style.pretty = Given(call, 1);
  if (style.pretty) {
    SLUICE_ASSIGN_OR_RETURN(style.indent, Indentation(call.args[1], 0, call.heap()));
  }
  style.item_separator.bytes = style.pretty ? "," : ", ";
  style.key_separator.bytes = ": ";
  if (Given(call, 2)) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> separators, Iterate(*call.args[2], call.heap()));
    if (separators.size() != 2 || !separators[0].is(Kind::kString) || !separators[1].is(Kind::kString)) {
      return absl::InvalidArgumentError("tojson: separators are two strings");
    }
    style.item_separator = separators[0].AsText();
    style.key_separator = separators[1].AsText();
  }
  TextBuilder out(call.context.budget());
  SLUICE_RETURN_IF_ERROR(ToJson(call.self, style, call.heap(), out));
  return call.heap().NewString(std::move(out));
}

// ---- HTML

Result EscapeAlways(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(text.AsView().size()));
  TextBuilder out(call.context.budget());
  AppendEscaped(text.AsText(), out);
  SLUICE_ASSIGN_OR_RETURN(const Value escaped, call.heap().NewString(std::move(out)));
  return escaped.AsMarkup();
}

Result EscapeOnce(const Invocation& call) { return call.self.is_markup() ? Result(call.self) : EscapeAlways(call); }

Result XmlAttr(const Invocation& call) {
  if (!call.self.is(Kind::kDict)) return absl::InvalidArgumentError("xmlattr wants a dict");
  TextBuilder out(call.context.budget());
  const bool space = call.args[0] == nullptr || IsTrue(*call.args[0]);
  for (const Dict::Entry& entry : call.self.AsDict().entries()) {
    if (entry.value.is(Kind::kNone) || entry.value.is(Kind::kUndefined)) continue;
    if (!entry.key.is(Kind::kString) || entry.key.AsView().find_first_of(" \t\n\r\f\v/>=") != absl::string_view::npos) {
      return absl::InvalidArgumentError("xmlattr: a key is no name of an attribute");
    }
    if (out.size() > 0 || space) out.Append(" ", Origin::kTemplate);
    AppendEscaped(entry.key.AsText(), out);
    out.Append("=\"", Origin::kTemplate);
    SLUICE_ASSIGN_OR_RETURN(const Value value, ToStr(entry.value, call.heap()));
    value.is_markup() ? out.Append(value.AsText()) : AppendEscaped(value.AsText(), out);
    out.Append("\"", Origin::kTemplate);
    SLUICE_RETURN_IF_ERROR(out.status());
  }
  return call.heap().NewString(std::move(out));
}

// Percent-encoding; `kept` stays as it is besides letters, digits and "_.-~".
void AppendQuoted(const Text& text, absl::string_view kept, bool blank_as_plus, TextBuilder& out) {
  for (size_t i = 0; i < text.bytes.size() && out.status().ok(); ++i) {
    const auto c = static_cast<unsigned char>(text.bytes[i]);
    const Origin origin = text.OriginAt(i);
    if (absl::ascii_isalnum(c) || absl::string_view("_.-~").find(char(c)) != absl::string_view::npos ||
        kept.find(char(c)) != absl::string_view::npos) {
      out.Append(TextSlice{&text, i, i + 1});
    } else if (c == ' ' && blank_as_plus) {
      out.Append("+", origin);
    } else {
      const char escape[] = {'%', "0123456789ABCDEF"[c >> 4], "0123456789ABCDEF"[c & 15]};
      out.Append(absl::string_view(escape, 3), origin);
    }
  }
}

Result UrlEncode(const Invocation& call) {
  Heap& heap = call.heap();
  TextBuilder out(heap.budget());
  const bool single = call.self.is(Kind::kString) || !(call.self.is(Kind::kList) || call.self.is(Kind::kDict));
  if (single) {
    SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, heap));
    SLUICE_RETURN_IF_ERROR(heap.budget().Visit(text.AsView().size()));
    AppendQuoted(text.AsText(), "/", false, out);
    return heap.NewString(std::move(out));
  }
  Value pairs = call.self;
  if (pairs.is(Kind::kDict)) {
    SLUICE_ASSIGN_OR_RETURN(pairs, Invoke(*FindMethod(pairs, "items"), call.context, pairs, {}));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(pairs, heap));
  for (size_t i = 0; i < items.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> pair, Iterate(items[i], heap));
    if (pair.size() != 2) return absl::InvalidArgumentError("urlencode wants pairs");
    if (i > 0) out.Append("&", Origin::kTemplate);
    for (size_t j = 0; j < 2; ++j) {
      if (j == 1) out.Append("=", Origin::kTemplate);
      SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(pair[j], heap));
      SLUICE_RETURN_IF_ERROR(heap.budget().Visit(text.AsView().size()));
      AppendQuoted(text.AsText(), "", true, out);
    }
  }
  return heap.NewString(std::move(out));
}

// ---- layout

Result Center(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const int64_t width, Integer(call, 0, 80, "center"));
  TextBuilder out(call.context.budget());
  SLUICE_RETURN_IF_ERROR(AppendAligned(Whole(text.AsText()), width, Align::kCenter, " ", out, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value centred, call.heap().NewString(std::move(out)));
  return centred.MarkupLike(text);
}

Result FormatFilter(const Invocation& call) {
  Heap& heap = call.heap();
  SLUICE_ASSIGN_OR_RETURN(const Value text, ToStr(call.self, heap));
  if (!call.all.positional.empty() && !call.all.keyword.empty()) {
    return absl::InvalidArgumentError("format wants values or names, not both");
  }
  if (call.all.keyword.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const Value tuple, heap.NewList(call.all.positional, ListKind::kTuple));
    return PercentFormat(text, tuple, heap);
  }
  SLUICE_ASSIGN_OR_RETURN(const Value dict, heap.NewDict());
  for (const auto& [name, value] : call.all.keyword) {
    SLUICE_ASSIGN_OR_RETURN(const Value key, heap.NewString(name, Origin::kTemplate));
    SLUICE_RETURN_IF_ERROR(heap.SetItem(dict.AsDict(), key, value));
  }
  return PercentFormat(text, dict, heap);
}

Result Truncate(const Invocation& call) {
  Heap& heap = call.heap();
  SLUICE_ASSIGN_OR_RETURN(const int64_t length, Integer(call, 0, 255, "truncate"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t leeway, Integer(call, 3, 5, "truncate"));
  SLUICE_ASSIGN_OR_RETURN(const Value dots, heap.NewString("...", Origin::kTemplate));
  const Value end = call.args[2] != nullptr ? *call.args[2] : dots;
  if (!end.is(Kind::kString)) return WantsText("truncate", end);
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit(end.AsView().size()));
  const auto end_length = static_cast<int64_t>(CountChars(end.AsView()));
  if (length < end_length || leeway < 0)
    return absl::InvalidArgumentError("truncate wants a length that its end fits in");
  SLUICE_ASSIGN_OR_RETURN(const Value measured, Invoke(*FindFilter("length"), call.context, call.self, {}));
  const int64_t size = measured.AsInt();
  if (size <= leeway || size - leeway <= length) return call.self;
  if (!call.self.is(Kind::kString)) return WantsText("truncate", call.self);
  SLUICE_ASSIGN_OR_RETURN(Value kept, TakeSlice(call.self, std::nullopt, length - end_length, std::nullopt, heap));
  if (!Flag(call, 1)) {
    SLUICE_ASSIGN_OR_RETURN(const auto words, Split(kept.AsText(), " ", 1, /*from_right=*/true, heap));
    SLUICE_ASSIGN_OR_RETURN(const Value first, heap.NewString(words.front()));
    kept = first.MarkupLike(kept);
  }
  return ApplyBinary(BinaryOp::kAdd, kept, end, heap);
}

constexpr Builtin kTextFilters[] = {
    {"capitalize", InCase<Case::kCapitalized>},
    {"center", Center, {"width"}},
    {"e", EscapeOnce},
    {"escape", EscapeOnce},
    {"forceescape", EscapeAlways},
    {"format", FormatFilter, {}, 0, /*variadic=*/true},
    {"indent", IndentFilter, {"width", "first", "blank"}},
    {"lower", InCase<Case::kLower>},
    {"replace", ReplaceFilter, {"old", "new", "count"}, 2},
    {"safe", Safe},
    {"string", String},
    {"title", InCase<Case::kWords>},
    {"tojson", ToJsonFilter, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", Trim, {"chars"}},
    {"truncate", Truncate, {"length", "killwords", "end", "leeway"}},
    {"upper", InCase<Case::kUpper>},
    {"urlencode", UrlEncode},
    {"xmlattr", XmlAttr, {"autospace"}},
};

}  // namespace

absl::Span<const Builtin> TextFilters() { return kTextFilters; }

}  // namespace sluice::jinja
