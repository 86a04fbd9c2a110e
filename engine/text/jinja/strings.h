// Python's string operations on text that remembers its origin. Parts are slices of the given text, without copies.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/text.h"
#include "engine/text/jinja/value.h"

namespace sluice::jinja {

enum class Side { kLeft, kRight, kBoth };

inline TextSlice Whole(const Text& text) { return {&text, 0, text.bytes.size()}; }

// strip(), lstrip(), rstrip(): takes off the characters in `chars`, or whitespace without it.
absl::StatusOr<TextSlice> Strip(const Text& text, std::optional<absl::string_view> chars, Side side, Heap& heap);

// split() and rsplit(): at each `separator`, or at runs of whitespace without it; at most `limit` times if that is not
// negative, counted from the left, or from the right if `from_right`.
absl::StatusOr<std::vector<TextSlice>> Split(const Text& text, std::optional<absl::string_view> separator,
                                             int64_t limit, bool from_right, Heap& heap);

// splitlines(): without the line ends, unless `keep_ends`.
absl::StatusOr<std::vector<TextSlice>> SplitLines(const TextSlice& text, bool keep_ends, Heap& heap);

// replace(): at most `limit` times if that is not negative.
absl::StatusOr<Value> Replace(const Text& text, const Text& from, const Text& to, int64_t limit, Heap& heap);

// upper(), lower(), capitalize(), title(), swapcase(), casefold(): each span of one origin is converted by itself.
// kWords: the filter title, which begins a word after blanks, '-' and opening brackets only.
enum class Case { kUpper, kLower, kCapitalized, kTitle, kSwapped, kFolded, kWords };
absl::StatusOr<Value> ChangeCase(const Text& text, Case to, Heap& heap);

// The filter indent: puts `indentation` before every line but the first (unless `first`) and empty ones (unless
// `blank`).
absl::StatusOr<Value> Indent(const Text& text, const Text& indentation, bool first, bool blank, Heap& heap);

// `text` between so many copies of `fill` (one character) that it has `width` characters; the odd one goes where
// Python's center() puts it.
enum class Align { kLeft, kRight, kCenter };
absl::Status AppendAligned(const TextSlice& text, int64_t width, Align align, absl::string_view fill, TextBuilder& out,
                           Heap& heap);

// `text` with & < > ' " as HTML entities.
void AppendEscaped(const TextSlice& text, TextBuilder& out);
inline void AppendEscaped(const Text& text, TextBuilder& out) { AppendEscaped(Whole(text), out); }

// str.islower(), or str.isupper() if `upper`: there is a letter with a case, and none of the other cases.
bool HasOneCase(absl::string_view s, bool upper);

// A list of string values.
absl::StatusOr<Value> ToStrings(const std::vector<TextSlice>& parts, Heap& heap);

}  // namespace sluice::jinja
