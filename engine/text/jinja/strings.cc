#include "engine/text/jinja/strings.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

// memmem, which is linear, unlike string_view::find.
size_t Find(absl::string_view haystack, absl::string_view needle, size_t from) {
  const void* found = memmem(haystack.data() + from, haystack.size() - from, needle.data(), needle.size());
  return found == nullptr ? absl::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - haystack.data());
}

bool InSet(absl::string_view s, size_t pos, std::optional<absl::string_view> chars) {
  if (!chars) return IsSpace(CharAt(s, pos));
  const absl::string_view c = s.substr(pos, CharLength(s, pos));
  for (size_t i = 0; i < chars->size(); i += CharLength(*chars, i)) {
    if (chars->substr(i, CharLength(*chars, i)) == c) return true;
  }
  return false;
}

void SplitAtSpace(const Text& text, size_t limit, std::vector<TextSlice>* parts) {
  const absl::string_view s = text.bytes;
  size_t pos = 0;
  while (true) {
    while (pos < s.size() && IsSpace(CharAt(s, pos))) pos += CharLength(s, pos);
    if (pos == s.size()) return;
    const size_t begin = pos;
    if (parts->size() == limit) {  // the rest stays together, whatever whitespace it ends with
      parts->push_back({&text, begin, s.size()});
      return;
    }
    while (pos < s.size() && !IsSpace(CharAt(s, pos))) pos += CharLength(s, pos);
    parts->push_back({&text, begin, pos});
  }
}

void SplitAtSpaceFromRight(const Text& text, size_t limit, std::vector<TextSlice>* parts) {
  const absl::string_view s = text.bytes;
  size_t end = s.size();
  while (true) {
    while (end > 0 && IsSpace(CharAt(s, PreviousChar(s, end)))) end = PreviousChar(s, end);
    if (end == 0) break;
    size_t begin = end;
    if (parts->size() == limit) {
      parts->push_back({&text, 0, end});
      break;
    }
    while (begin > 0 && !IsSpace(CharAt(s, PreviousChar(s, begin)))) begin = PreviousChar(s, begin);
    parts->push_back({&text, begin, end});
    end = begin;
  }
  std::reverse(parts->begin(), parts->end());
}

}  // namespace

absl::StatusOr<TextSlice> Strip(const Text& text, std::optional<absl::string_view> chars, Side side, Heap& heap) {
  const absl::string_view s = text.bytes;
  size_t begin = 0, end = s.size();
  if (side != Side::kRight) {
    while (begin < end && InSet(s, begin, chars)) begin += CharLength(s, begin);
  }
  if (side != Side::kLeft) {
    while (end > begin && InSet(s, PreviousChar(s, end), chars)) end = PreviousChar(s, end);
  }
  // Each character taken off was compared with every one of the set.
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit((s.size() - (end - begin)) * (1 + (chars ? chars->size() / 16 : 0))));
  return TextSlice{&text, begin, end};
}

absl::StatusOr<std::vector<TextSlice>> Split(const Text& text, std::optional<absl::string_view> separator,
                                             int64_t limit, bool from_right, Heap& heap) {
  const absl::string_view s = text.bytes;
  const size_t max_splits = limit < 0 ? SIZE_MAX : static_cast<size_t>(limit);
  std::vector<TextSlice> parts;
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit(s.size()));
  if (!separator) {
    from_right ? SplitAtSpaceFromRight(text, max_splits, &parts) : SplitAtSpace(text, max_splits, &parts);
    return parts;
  }
  if (separator->empty()) return absl::InvalidArgumentError("split: the separator is empty");
  if (!from_right) {
    size_t begin = 0;
    for (size_t at; parts.size() < max_splits && (at = Find(s, *separator, begin)) != absl::string_view::npos;) {
      parts.push_back({&text, begin, at});
      begin = at + separator->size();
    }
    parts.push_back({&text, begin, s.size()});
    return parts;
  }
  size_t end = s.size();
  for (size_t at; parts.size() < max_splits && end >= separator->size() &&
                  (at = s.rfind(*separator, end - separator->size())) != absl::string_view::npos;) {
    SLUICE_RETURN_IF_ERROR(heap.budget().Scan((end - at) * separator->size()));  // what rfind may have cost
    parts.push_back({&text, at + separator->size(), end});
    end = at;
  }
  parts.push_back({&text, 0, end});
  std::reverse(parts.begin(), parts.end());
  return parts;
}

absl::StatusOr<std::vector<TextSlice>> SplitLines(const TextSlice& text, bool keep_ends, Heap& heap) {
  const absl::string_view s = absl::string_view(text.text->bytes).substr(0, text.end);
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit(text.end - text.begin));
  std::vector<TextSlice> lines;
  size_t begin = text.begin;
  for (size_t pos = begin; pos < s.size();) {
    const char32_t c = CharAt(s, pos);
    const size_t end = pos;
    pos += CharLength(s, pos);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && pos < s.size() && s[pos] == '\n') ++pos;
    lines.push_back({text.text, begin, keep_ends ? pos : end});
    begin = pos;
  }
  if (begin < s.size()) lines.push_back({text.text, begin, s.size()});
  return lines;
}

absl::StatusOr<Value> Replace(const Text& text, const Text& from, const Text& to, int64_t limit, Heap& heap) {
  const absl::string_view s = text.bytes;
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit(s.size()));
  TextBuilder out(heap.budget());
  size_t begin = 0;
  int64_t left = limit < 0 ? INT64_MAX : limit;
  if (from.bytes.empty()) {  // goes before every character and to the end
    for (; left > 0 && out.status().ok(); --left) {
      out.Append(to);
      if (begin == s.size()) break;
      const size_t end = begin + CharLength(s, begin);
      out.Append(TextSlice{&text, begin, end});
      begin = end;
    }
  } else {
    for (size_t at; left > 0 && out.status().ok() && (at = Find(s, from.bytes, begin)) != absl::string_view::npos;
         --left) {
      out.Append(TextSlice{&text, begin, at});
      out.Append(to);
      begin = at + from.bytes.size();
    }
  }
  out.Append(TextSlice{&text, begin, s.size()});
  return heap.NewString(std::move(out));
}

absl::StatusOr<Value> ChangeCase(const Text& text, Case to, Heap& heap) {
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit(text.bytes.size() * (text.ascii ? 1 : 16)));
  TextBuilder out(heap.budget());
  const absl::string_view all = text.bytes;
  bool in_word = false;  // of title() and the filter of that name: a letter, or anything, stands before
  auto append = [&](size_t begin, size_t end, Origin origin) {
    const absl::string_view part = all.substr(begin, end - begin);
    switch (to) {
      case Case::kUpper:
        out.Append(ToUpper(part), origin);
        return;
      case Case::kLower:
        out.Append(ToLower(part), origin);
        return;
      case Case::kSwapped:
        out.Append(SwapCase(part), origin);
        return;
      case Case::kFolded:
        out.Append(FoldCase(part), origin);
        return;
      case Case::kCapitalized: {
        const size_t first = begin == 0 && !part.empty() ? CharLength(part, 0) : 0;
        out.Append(ToTitle(part.substr(0, first)), origin);
        out.Append(ToLower(part.substr(first)), origin);
        return;
      }
      case Case::kTitle:
      case Case::kWords:
        break;
    }
    for (size_t pos = 0, length; pos < part.size() && out.status().ok(); pos += length) {
      length = CharLength(part, pos);
      const absl::string_view c = part.substr(pos, length);
      if (to == Case::kTitle) {
        out.Append(in_word ? LowerAt(part, pos) : ToTitle(c), origin);
        in_word = IsCased(CharAt(part, pos));
      } else {
        const bool separator =
            IsSpace(CharAt(part, pos)) || absl::string_view("-({[<").find(c) != absl::string_view::npos;
        out.Append(in_word ? LowerAt(part, pos) : ToUpper(c), origin);
        in_word = !separator;
      }
    }
  };
  size_t begin = 0;
  for (const ByteRange& range : text.user) {
    append(begin, range.begin, Origin::kTemplate);
    append(range.begin, range.end, range.origin);
    begin = range.end;
  }
  append(begin, text.bytes.size(), Origin::kTemplate);
  return heap.NewString(std::move(out));
}

absl::Status AppendAligned(const TextSlice& text, int64_t width, Align align, absl::string_view fill, TextBuilder& out,
                           Heap& heap) {
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit(text.view().size()));
  const auto length = static_cast<int64_t>(CountChars(text.view()));
  const int64_t missing = std::max<int64_t>(width - length, 0);
  const int64_t left = align == Align::kLeft    ? 0
                       : align == Align::kRight ? missing
                                                : missing / 2 + (missing & width & 1);
  out.AppendRepeated(fill, left, Origin::kTemplate);
  out.Append(text);
  out.AppendRepeated(fill, missing - left, Origin::kTemplate);
  return out.status();
}

void AppendEscaped(const TextSlice& text, TextBuilder& out) {
  const absl::string_view s = absl::string_view(text.text->bytes).substr(0, text.end);
  for (size_t pos = text.begin; out.status().ok();) {
    const size_t special = std::min(s.find_first_of("&<>'\"", pos), s.size());
    out.Append(TextSlice{text.text, pos, special});
    if (special == s.size()) return;
    static constexpr std::pair<char, absl::string_view> kEscapes[] = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    for (const auto& [c, escape] : kEscapes) {
      if (c == s[special]) out.Append(escape, text.text->OriginAt(special));
    }
    pos = special + 1;
  }
}

absl::StatusOr<Value> Indent(const Text& text, const Text& indentation, bool first, bool blank, Heap& heap) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<TextSlice> lines, SplitLines(Whole(text), false, heap));
  // A text that ends with a line break keeps it: as an empty last line.
  if (text.bytes.empty() || IsLineBreak(CharAt(text.bytes, PreviousChar(text.bytes, text.bytes.size())))) {
    lines.push_back({&text, text.bytes.size(), text.bytes.size()});
  }
  TextBuilder out(heap.budget());
  for (size_t i = 0; i < lines.size() && out.status().ok(); ++i) {
    if (i > 0) out.Append("\n", Origin::kTemplate);
    const bool empty = lines[i].begin == lines[i].end;
    if (i == 0 ? first : blank || !empty) out.Append(indentation);
    out.Append(lines[i]);
  }
  return heap.NewString(std::move(out));
}

bool HasOneCase(absl::string_view s, bool upper) {
  bool any = false;
  for (size_t pos = 0; pos < s.size(); pos += CharLength(s, pos)) {
    const char32_t c = CharAt(s, pos);
    if (IsTitlecase(c) || (upper ? IsLowercase(c) : IsUppercase(c))) return false;
    any = any || (upper ? IsUppercase(c) : IsLowercase(c));
  }
  return any;
}

absl::StatusOr<Value> ToStrings(const std::vector<TextSlice>& parts, Heap& heap) {
  SLUICE_ASSIGN_OR_RETURN(const Value list, heap.NewList({}));
  for (const TextSlice& part : parts) {
    SLUICE_ASSIGN_OR_RETURN(const Value text, heap.NewString(part));
    SLUICE_RETURN_IF_ERROR(heap.AppendItem(list.AsList(), text));
  }
  return list;
}

}  // namespace sluice::jinja
