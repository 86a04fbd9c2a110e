// Methods of strings.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/format.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/strings.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

using Result = absl::StatusOr<Value>;

absl::Status WantsString(absl::string_view what, const Value& found) {
  return absl::InvalidArgumentError(absl::StrCat(what, " wants a string, found ", TypeName(found)));
}

// The argument `i` if it was given and is not none.
absl::StatusOr<std::optional<absl::string_view>> OptionalString(const Invocation& call, size_t i,
                                                                absl::string_view what) {
  const Value* arg = call.args[i];
  if (arg == nullptr || arg->is(Kind::kNone)) return std::nullopt;
  if (!arg->is(Kind::kString)) return WantsString(what, *arg);
  return std::optional(arg->AsView());
}

absl::StatusOr<int64_t> OptionalInt(const Invocation& call, size_t i, int64_t otherwise, absl::string_view what) {
  const Value* arg = call.args[i];
  if (arg == nullptr) return otherwise;
  if (!arg->IsInteger()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " wants an integer, found ", TypeName(*arg)));
  }
  return arg->AsInt();
}

absl::StatusOr<absl::string_view> RequiredString(const Invocation& call, size_t i, absl::string_view what) {
  if (!call.args[i]->is(Kind::kString)) return WantsString(what, *call.args[i]);
  return call.args[i]->AsView();
}

// The parts as a list; HTML if the object is.
Result Parts(const Invocation& call, const std::vector<TextSlice>& parts) {
  SLUICE_ASSIGN_OR_RETURN(const Value list, ToStrings(parts, call.heap()));
  if (call.self.is_markup()) {
    for (Value& item : list.AsList().items) item = item.AsMarkup();
  }
  return list;
}

Result StripSide(const Invocation& call, Side side) {
  SLUICE_ASSIGN_OR_RETURN(const auto chars, OptionalString(call, 0, "strip"));
  SLUICE_ASSIGN_OR_RETURN(const TextSlice rest, Strip(call.self.AsText(), chars, side, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value stripped, call.heap().NewString(rest));
  return stripped.MarkupLike(call.self);
}
Result StrStrip(const Invocation& call) { return StripSide(call, Side::kBoth); }
Result StrLstrip(const Invocation& call) { return StripSide(call, Side::kLeft); }
Result StrRstrip(const Invocation& call) { return StripSide(call, Side::kRight); }

Result SplitSide(const Invocation& call, bool from_right) {
  SLUICE_ASSIGN_OR_RETURN(const auto separator, OptionalString(call, 0, "split"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t limit, OptionalInt(call, 1, -1, "split"));
  SLUICE_ASSIGN_OR_RETURN(const auto parts, Split(call.self.AsText(), separator, limit, from_right, call.heap()));
  return Parts(call, parts);
}
Result StrSplit(const Invocation& call) { return SplitSide(call, false); }
Result StrRsplit(const Invocation& call) { return SplitSide(call, true); }

Result StrSplitlines(const Invocation& call) {
  const bool keep_ends = call.args[0] != nullptr && IsTrue(*call.args[0]);
  SLUICE_ASSIGN_OR_RETURN(const auto lines, SplitLines(Whole(call.self.AsText()), keep_ends, call.heap()));
  return Parts(call, lines);
}

// The part of the text that the arguments `i` and `i + 1` (from, to; in characters) leave; nullopt if it begins beyond
// the end.
absl::StatusOr<std::optional<TextSlice>> Window(const Invocation& call, size_t i) {
  const Text& text = call.self.AsText();
  if (!Given(call, i) && !Given(call, i + 1)) return std::optional<TextSlice>(Whole(text));
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(text.bytes.size()));
  const auto length = static_cast<int64_t>(CountChars(text.bytes));
  int64_t bounds[2] = {0, length};
  for (size_t j = 0; j < 2; ++j) {
    if (!Given(call, i + j)) continue;
    if (!call.args[i + j]->IsInteger()) return absl::InvalidArgumentError("a position in a string is an integer");
    const int64_t given = call.args[i + j]->AsInt();
    if (j == 0 && given > length) return std::optional<TextSlice>();
    bounds[j] = given < 0 ? std::max<int64_t>(std::max(given, -length) + length, 0) : std::min(given, length);
  }
  if (bounds[0] > bounds[1]) return std::optional<TextSlice>();
  TextSlice window = Whole(text);
  int64_t at = 0;
  size_t pos = 0;
  for (; at < bounds[0]; ++at) pos += CharLength(text.bytes, pos);
  window.begin = pos;
  for (; at < bounds[1]; ++at) pos += CharLength(text.bytes, pos);
  window.end = pos;
  return std::optional<TextSlice>(window);
}

// startswith and endswith: `matches` is asked for the argument, or for each item if it is a tuple.
template <typename Matches>
Result HasAffix(const Invocation& call, absl::string_view what, Matches matches) {
  const Value& affix = *call.args[0];
  std::vector<Value> candidates = {affix};
  if (affix.is(Kind::kList) && affix.AsList().kind == ListKind::kTuple) candidates = affix.AsList().items;
  SLUICE_ASSIGN_OR_RETURN(const std::optional<TextSlice> window, Window(call, 1));
  for (const Value& candidate : candidates) {
    if (!candidate.is(Kind::kString)) return WantsString(what, candidate);
    SLUICE_RETURN_IF_ERROR(call.heap().budget().Scan(candidate.AsView().size()));
    if (window && matches(window->view(), candidate.AsView())) return Value::Bool(true);
  }
  return Value::Bool(false);
}
Result StrStartswith(const Invocation& call) {
  return HasAffix(call, "startswith", [](absl::string_view s, absl::string_view p) { return absl::StartsWith(s, p); });
}
Result StrEndswith(const Invocation& call) {
  return HasAffix(call, "endswith", [](absl::string_view s, absl::string_view p) { return absl::EndsWith(s, p); });
}

// removeprefix and removesuffix.
template <bool suffix>
Result RemoveAffix(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view affix,
                          RequiredString(call, 0, suffix ? "removesuffix" : "removeprefix"));
  const absl::string_view s = call.self.AsView();
  if (suffix ? !absl::EndsWith(s, affix) : !absl::StartsWith(s, affix)) return call.self;
  const TextSlice rest = suffix ? TextSlice{&call.self.AsText(), 0, s.size() - affix.size()}
                                : TextSlice{&call.self.AsText(), affix.size(), s.size()};
  SLUICE_ASSIGN_OR_RETURN(const Value removed, call.heap().NewString(rest));
  return removed.MarkupLike(call.self);
}

// The argument as text, escaped if the object is HTML and the argument is not.
absl::StatusOr<Value> EscapedLike(const Value& self, const Value& text, Heap& heap) {
  if (!self.is_markup() || text.is_markup()) return text;
  TextBuilder out(heap.budget());
  AppendEscaped(text.AsText(), out);
  return heap.NewString(std::move(out));
}

Result StrReplace(const Invocation& call) {
  for (size_t i : {0, 1}) {
    if (!call.args[i]->is(Kind::kString)) return WantsString("replace", *call.args[i]);
  }
  SLUICE_ASSIGN_OR_RETURN(const int64_t limit, OptionalInt(call, 2, -1, "replace"));
  SLUICE_ASSIGN_OR_RETURN(const Value to, EscapedLike(call.self, *call.args[1], call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value replaced,
                          Replace(call.self.AsText(), call.args[0]->AsText(), to.AsText(), limit, call.heap()));
  return replaced.MarkupLike(call.self);
}

template <Case to>
Result InCase(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const Value changed, ChangeCase(call.self.AsText(), to, call.heap()));
  return changed.MarkupLike(call.self);
}

Result StrJoin(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(*call.args[0], call.heap()));
  TextBuilder out(call.context.budget());
  for (size_t i = 0; i < items.size() && out.status().ok(); ++i) {
    if (!items[i].is(Kind::kString)) return WantsString("join", items[i]);
    if (i > 0) out.Append(call.self.AsText());
    SLUICE_ASSIGN_OR_RETURN(const Value item, EscapedLike(call.self, items[i], call.heap()));
    out.Append(item.AsText());
  }
  SLUICE_ASSIGN_OR_RETURN(const Value joined, call.heap().NewString(std::move(out)));
  return joined.MarkupLike(call.self);
}

// find, rfind, index and rindex: where the first (or last) occurrence begins, in characters.
template <bool last, bool must_be_there>
Result Search(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view needle, RequiredString(call, 0, "find"));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<TextSlice> window, Window(call, 1));
  size_t found = absl::string_view::npos;
  if (window) {
    const absl::string_view s = window->view();
    SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(s.size()));
    if (last) {
      // What rfind may cost at worst.
      SLUICE_RETURN_IF_ERROR(call.context.budget().Scan(s.size() * std::min<size_t>(needle.size() + 1, 1 << 16)));
      found = s.rfind(needle);
    } else {
      const void* at = memmem(s.data(), s.size(), needle.data(), needle.size());
      if (at != nullptr) found = static_cast<size_t>(static_cast<const char*>(at) - s.data());
    }
  }
  if (found == absl::string_view::npos) {
    if (must_be_there) return absl::InvalidArgumentError("index: the text is not there");
    return Value::Int(-1);
  }
  return Value::Int(static_cast<int64_t>(CountChars(call.self.AsView().substr(0, window->begin + found))));
}

Result StrCount(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view needle, RequiredString(call, 0, "count"));
  SLUICE_ASSIGN_OR_RETURN(const std::optional<TextSlice> window, Window(call, 1));
  if (!window) return Value::Int(0);
  const absl::string_view s = window->view();
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(s.size()));
  if (needle.empty()) return Value::Int(static_cast<int64_t>(CountChars(s) + 1));
  int64_t count = 0;
  for (size_t pos = 0; pos < s.size(); ++count) {
    const void* at = memmem(s.data() + pos, s.size() - pos, needle.data(), needle.size());
    if (at == nullptr) break;
    pos = static_cast<size_t>(static_cast<const char*>(at) - s.data()) + needle.size();
  }
  return Value::Int(count);
}

// partition and rpartition: what stands before the separator, it, and what follows.
template <bool last>
Result Partition(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view separator, RequiredString(call, 0, "partition"));
  SLUICE_ASSIGN_OR_RETURN(const auto parts, Split(call.self.AsText(), separator, 1, last, call.heap()));
  const Text& text = call.self.AsText();
  const size_t size = text.bytes.size();
  std::vector<TextSlice> result;
  if (parts.size() == 2) {
    result = {parts[0], {&text, parts[0].end, parts[1].begin}, parts[1]};
  } else if (last) {
    result = {{&text, 0, 0}, {&text, 0, 0}, {&text, 0, size}};
  } else {
    result = {{&text, 0, size}, {&text, size, size}, {&text, size, size}};
  }
  SLUICE_ASSIGN_OR_RETURN(const Value tuple, Parts(call, result));
  tuple.AsList().kind = ListKind::kTuple;
  return tuple;
}

// center, ljust and rjust.
template <Align align>
Result Aligned(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t width, OptionalInt(call, 0, 0, "a width"));
  absl::string_view fill = " ";
  if (call.args[1] != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(fill, RequiredString(call, 1, "a fill character"));
    if (fill.empty() || CharLength(fill, 0) != fill.size())
      return absl::InvalidArgumentError("the fill is one character");
  }
  TextBuilder out(call.context.budget());
  SLUICE_RETURN_IF_ERROR(AppendAligned(Whole(call.self.AsText()), width, align, fill, out, call.heap()));
  SLUICE_ASSIGN_OR_RETURN(const Value aligned, call.heap().NewString(std::move(out)));
  return aligned.MarkupLike(call.self);
}

Result StrZfill(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t width, OptionalInt(call, 0, 0, "zfill"));
  const absl::string_view s = call.self.AsView();
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(s.size()));
  const size_t sign = !s.empty() && (s[0] == '-' || s[0] == '+') ? 1 : 0;
  TextBuilder out(call.context.budget());
  out.Append(TextSlice{&call.self.AsText(), 0, sign});
  out.AppendRepeated("0", width - static_cast<int64_t>(CountChars(s)), Origin::kTemplate);
  out.Append(TextSlice{&call.self.AsText(), sign, s.size()});
  SLUICE_ASSIGN_OR_RETURN(const Value filled, call.heap().NewString(std::move(out)));
  return filled.MarkupLike(call.self);
}

Result StrExpandtabs(const Invocation& call) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t size, OptionalInt(call, 0, 8, "expandtabs"));
  const Text& text = call.self.AsText();
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(text.bytes.size()));
  TextBuilder out(call.context.budget());
  int64_t column = 0;
  size_t plain = 0;  // [plain, pos) goes out unchanged
  for (size_t pos = 0; pos < text.bytes.size() && out.status().ok(); pos += CharLength(text.bytes, pos)) {
    const char c = text.bytes[pos];
    if (c == '\t') {
      out.Append(TextSlice{&text, plain, pos});
      const int64_t blanks = size > 0 ? size - column % size : 0;
      out.AppendRepeated(" ", blanks, text.OriginAt(pos));
      column += blanks;
      plain = pos + 1;
    } else {
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  out.Append(TextSlice{&text, plain, text.bytes.size()});
  SLUICE_ASSIGN_OR_RETURN(const Value expanded, call.heap().NewString(std::move(out)));
  return expanded.MarkupLike(call.self);
}

// isalpha() and its like: there is a character, and each one is of the kind.
template <bool (*is_kind)(char32_t)>
Result All(const Invocation& call) {
  const absl::string_view s = call.self.AsView();
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(s.size()));
  for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) {
    if (!is_kind(CharAt(s, pos))) return Value::Bool(false);
  }
  return Value::Bool(!s.empty());
}

Result StrIsascii(const Invocation& call) { return Value::Bool(call.self.AsText().ascii); }
Result StrIsprintable(const Invocation& call) {
  if (call.self.AsView().empty()) return Value::Bool(true);
  return All<IsPrintable>(call);
}

// islower() and isupper(): there is a letter with a case, and none of the others.
template <bool upper>
Result OfOneCase(const Invocation& call) {
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(call.self.AsView().size()));
  return Value::Bool(HasOneCase(call.self.AsView(), upper));
}

Result StrIstitle(const Invocation& call) {
  const absl::string_view s = call.self.AsView();
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(s.size()));
  bool in_word = false, any = false;
  for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) {
    const char32_t c = CharAt(s, pos);
    const bool begins = IsUppercase(c) || IsTitlecase(c);
    if ((begins && in_word) || (IsLowercase(c) && !in_word)) return Value::Bool(false);
    in_word = begins || IsLowercase(c);
    any = any || in_word;
  }
  return Value::Bool(any);
}

// Letters, '_', and digits but not first. (Python also takes a few marks.)
Result StrIsidentifier(const Invocation& call) {
  const absl::string_view s = call.self.AsView();
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(s.size()));
  for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) {
    const char32_t c = CharAt(s, pos);
    if (c != '_' && !IsAlpha(c) && (pos == 0 || !IsDecimal(c))) return Value::Bool(false);
  }
  return Value::Bool(!s.empty());
}

Result StrFormat(const Invocation& call) { return BraceFormat(call.self, call.all, call.heap()); }

Result StrFormatMap(const Invocation& call) {
  if (!call.args[0]->is(Kind::kDict)) return absl::InvalidArgumentError("format_map wants a dict");
  CallArguments arguments;
  for (const Dict::Entry& entry : call.args[0]->AsDict().entries()) {
    if (entry.key.is(Kind::kString)) arguments.keyword.emplace_back(entry.key.AsView(), entry.value);
  }
  SLUICE_RETURN_IF_ERROR(call.context.budget().Build(arguments.keyword.size() * 2 * sizeof(arguments.keyword[0])));
  SLUICE_RETURN_IF_ERROR(call.context.budget().Visit(arguments.keyword.size()));
  return BraceFormat(call.self, arguments, call.heap());
}

constexpr Builtin kStringMethods[] = {
    {"capitalize", InCase<Case::kCapitalized>},
    {"casefold", InCase<Case::kFolded>},
    {"center", Aligned<Align::kCenter>, {"width", "fillchar"}, 1},
    {"count", StrCount, {"sub", "start", "end"}, 1},
    {"endswith", StrEndswith, {"suffix", "start", "end"}, 1},
    {"expandtabs", StrExpandtabs, {"tabsize"}},
    {"find", Search<false, false>, {"sub", "start", "end"}, 1},
    {"format", StrFormat, {}, 0, /*variadic=*/true},
    {"format_map", StrFormatMap, {"mapping"}, 1},
    {"index", Search<false, true>, {"sub", "start", "end"}, 1},
    {"isalnum", All<IsAlnum>},
    {"isalpha", All<IsAlpha>},
    {"isascii", StrIsascii},
    {"isdecimal", All<IsDecimal>},
    {"isdigit", All<IsDigit>},
    {"isidentifier", StrIsidentifier},
    {"islower", OfOneCase<false>},
    {"isnumeric", All<IsNumeric>},
    {"isprintable", StrIsprintable},
    {"isspace", All<IsSpace>},
    {"istitle", StrIstitle},
    {"isupper", OfOneCase<true>},
    {"join", StrJoin, {"iterable"}, 1},
    {"ljust", Aligned<Align::kLeft>, {"width", "fillchar"}, 1},
    {"lower", InCase<Case::kLower>},
    {"lstrip", StrLstrip, {"chars"}},
    {"partition", Partition<false>, {"sep"}, 1},
    {"removeprefix", RemoveAffix<false>, {"prefix"}, 1},
    {"removesuffix", RemoveAffix<true>, {"suffix"}, 1},
    {"replace", StrReplace, {"old", "new", "count"}, 2},
    {"rfind", Search<true, false>, {"sub", "start", "end"}, 1},
    {"rindex", Search<true, true>, {"sub", "start", "end"}, 1},
    {"rjust", Aligned<Align::kRight>, {"width", "fillchar"}, 1},
    {"rpartition", Partition<true>, {"sep"}, 1},
    {"rsplit", StrRsplit, {"sep", "maxsplit"}},
    {"rstrip", StrRstrip, {"chars"}},
    {"split", StrSplit, {"sep", "maxsplit"}},
    {"splitlines", StrSplitlines, {"keepends"}},
    {"startswith", StrStartswith, {"prefix", "start", "end"}, 1},
    {"strip", StrStrip, {"chars"}},
    {"swapcase", InCase<Case::kSwapped>},
    {"title", InCase<Case::kTitle>},
    {"upper", InCase<Case::kUpper>},
    {"zfill", StrZfill, {"width"}, 1},
};

}  // namespace

absl::Span<const Builtin> StringMethods() { return kStringMethods; }

}  // namespace sluice::jinja
