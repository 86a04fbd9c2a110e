#include "engine/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

using absl::string_view;

constexpr size_t kMaxStepTextBytes = 256;
constexpr size_t kMaxTextBytes = 500'000'000;  // four bytes for each of them still are fewer than 2^31

// The characters of Unicode 10 to 17 that normalization would move, take apart or join. To Unicode 9 they are
// unassigned: nothing moves past them, nothing joins them.
struct CodePointRange {
  char32_t first, last;
};
constexpr CodePointRange kInert[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ADD},   {0x1AE0, 0x1AEB},
    {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F1, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},
    {0x105C9, 0x105C9}, {0x105D2, 0x105D2}, {0x105DA, 0x105DA}, {0x105E4, 0x105E4}, {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC},
    {0x10EFA, 0x10EFB}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x1133B, 0x1133B}, {0x11382, 0x11385}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x11391},
    {0x113B8, 0x113B8}, {0x113BB, 0x113BB}, {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113C9},
    {0x113CE, 0x113D0}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x1611E, 0x16129}, {0x1612F, 0x1612F}, {0x16D63, 0x16D63}, {0x16D67, 0x16D6A},
    {0x16FF0, 0x16FF1}, {0x1CCD6, 0x1CCF9}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6E3},
    {0x1E6E6, 0x1E6E6}, {0x1E6EE, 0x1E6EF}, {0x1E6F5, 0x1E6F5}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

bool IsInert(char32_t c) {
  const auto* range = std::lower_bound(std::begin(kInert), std::end(kInert), c,
                                       [](const CodePointRange& r, char32_t value) { return r.last < value; });
  return range != std::end(kInert) && range->first <= c;
}

int CombiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// The character that `first` and `second` join to, or -1. Hangul is arithmetic (Unicode 16, section 3.12), done here
// because utf8proc 2.8 takes U+11A7, which stands for "no trailing consonant" in that arithmetic and is no consonant
// itself, for one and drops it.
utf8proc_int32_t Join(utf8proc_int32_t first, utf8proc_int32_t second) {
  constexpr int kLeads = 19, kVowels = 21, kTrails = 28;  // the first trail is none at all
  constexpr int kLead = 0x1100, kVowel = 0x1161, kTrail = 0x11A7, kSyllable = 0xAC00;
  if (second >= kVowel && second < kVowel + kVowels) {
    if (first < kLead || first >= kLead + kLeads) return -1;
    return kSyllable + ((first - kLead) * kVowels + (second - kVowel)) * kTrails;
  }
  if (second >= kTrail && second < kTrail + kTrails) {
    const int syllable = first - kSyllable;
    const bool open = syllable >= 0 && syllable < kLeads * kVowels * kTrails && syllable % kTrails == 0;
    return open && second > kTrail ? first + (second - kTrail) : -1;
  }
  utf8proc_int32_t pair[] = {first, second};
  return utf8proc_normalize_utf32(pair, 2, utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE)) == 1 ? pair[0] : -1;
}

// Canonical composition (UAX #15): each character joins the last starter before it, unless one between them that stays
// has a class that is not smaller. REQUIRES: decomposed, marks sorted.
void Compose(std::vector<utf8proc_int32_t>* points) {
  size_t kept = 0;
  utf8proc_int32_t* starter = nullptr;
  int last_class = -1;  // of what stays after the starter; -1: nothing does
  for (const utf8proc_int32_t point : *points) {
    const int combining_class = CombiningClass(point);
    if (starter != nullptr && last_class < combining_class) {
      if (const utf8proc_int32_t joined = Join(*starter, point); joined >= 0) {
        *starter = joined;
        continue;
      }
    }
    utf8proc_int32_t* const place = points->data() + kept++;
    *place = point;
    if (combining_class == 0) starter = place;
    last_class = combining_class == 0 ? -1 : combining_class;
  }
  points->resize(kept);
}

// Every form, of a chunk that its neighbours cannot change. utf8proc's own sorting of combining marks is quadratic and
// its composition loses a character (see Join), so only its tables are used.
void AppendNormalized(string_view chunk, bool compatibility, bool compose, std::string* out) {
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  for (; !chunk.empty(); chunk.remove_prefix(Utf8Length(chunk[0]))) {
    constexpr int kLongestDecomposition = 32;  // Unicode's longest has 18 characters
    utf8proc_int32_t decomposed[kLongestDecomposition];
    int boundary = UTF8PROC_BOUNDCLASS_START;
    const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(DecodeUtf8(chunk)), decomposed,
                                                           kLongestDecomposition, options, &boundary);
    SLUICE_CHECK(count >= 0 && count <= kLongestDecomposition);
    points.insert(points.end(), decomposed, decomposed + count);
  }
  for (auto begin = points.begin(); begin != points.end();) {
    const auto is_starter = [](utf8proc_int32_t c) { return CombiningClass(c) == 0; };
    begin = std::find_if_not(begin, points.end(), is_starter);
    const auto end = std::find_if(begin, points.end(), is_starter);
    std::stable_sort(begin, end, [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    begin = end;
  }
  if (compose) Compose(&points);
  for (const utf8proc_int32_t c : points) AppendUtf8(static_cast<char32_t>(c), out);
}

// Appends `to`, made from `from`, whose trust is `trust` (empty: put there by a step).
void AppendTrust(string_view from, string_view trust, string_view to, std::string* out) {
  if (from == to) {
    out->append(trust.data(), trust.size());
  } else if (trust.empty()) {
    out->append(to.size(), '\1');
  } else {
    out->append(to.size(), trust.find_first_not_of(trust[0]) == string_view::npos ? trust[0] : '\0');
  }
}

void RunForm(bool compatibility, bool compose, std::string* text, std::string* trusted) {
  const string_view source = *text;
  const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
  if (std::all_of(source.begin(), source.end(), is_ascii)) return;
  std::string out, out_trusted;
  out.reserve(source.size());
  const auto append_as_it_is = [&](size_t begin, size_t end) {
    out.append(source.data() + begin, end - begin);
    if (!trusted->empty()) out_trusted.append(*trusted, begin, end - begin);
  };
  for (size_t begin = 0; begin < source.size();) {
    // A chunk: an ASCII character (they are all starters and join nothing before them), then others.
    size_t end = begin;
    if (is_ascii(source[end])) {
      while (end < source.size() && is_ascii(source[end])) ++end;
      const size_t last = end < source.size() ? end - 1 : end;
      append_as_it_is(begin, last);
      begin = last;
    }
    bool inert = false;
    while (end < source.size() && !is_ascii(source[end]) && !inert) {
      inert = IsInert(DecodeUtf8(source.substr(end)));
      if (!inert) end += Utf8Length(source[end]);
    }
    const string_view chunk = source.substr(begin, end - begin);
    const size_t start = out.size();
    AppendNormalized(chunk, compatibility, compose, &out);
    if (!trusted->empty()) {
      AppendTrust(chunk, string_view(*trusted).substr(begin, chunk.size()), string_view(out).substr(start),
                  &out_trusted);
    }
    begin = end;
    if (inert) {
      append_as_it_is(begin, begin + Utf8Length(source[begin]));
      begin += Utf8Length(source[begin]);
    }
  }
  *text = std::move(out);
  *trusted = std::move(out_trusted);
}

absl::Status RunReplace(const Regex& pattern, string_view by, std::string* text, std::string* trusted) {
  std::vector<TextRange> matches;
  SLUICE_RETURN_IF_ERROR(Regex::Search(pattern).FindAll(*text, &matches));
  if (matches.empty()) return absl::OkStatus();
  if (by.size() > 1 && matches.size() > (kMaxTextBytes - text->size()) / by.size()) {
    return absl::InvalidArgumentError(absl::StrCat("text: found ", text->size(), " bytes with ", matches.size(),
                                                   " places to rewrite, expected at most ", kMaxTextBytes,
                                                   " bytes after that"));
  }
  std::string out, out_trusted;
  out.reserve(text->size() + matches.size() * by.size());
  size_t done = 0;
  for (const TextRange& match : matches) {
    out.append(*text, done, match.begin - done);
    out.append(by.data(), by.size());
    if (!trusted->empty()) {
      out_trusted.append(*trusted, done, match.begin - done);
      const size_t length = match.end - match.begin;
      AppendTrust(string_view(*text).substr(match.begin, length), string_view(*trusted).substr(match.begin, length), by,
                  &out_trusted);
    }
    done = match.end;
  }
  out.append(*text, done, std::string::npos);
  if (!trusted->empty()) out_trusted.append(*trusted, done, std::string::npos);
  *text = std::move(out);
  *trusted = std::move(out_trusted);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::Create(absl::Span<const NormalizerStep> steps) {
  Normalizer normalizer;
  for (size_t i = 0; i < steps.size(); ++i) {
    const NormalizerStep& step = steps[i];
    if (step.text.size() > kMaxStepTextBytes) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer normalizer[", i, "]: found a text of ",
                                                     step.text.size(), " bytes, expected at most ", kMaxStepTextBytes));
    }
    Step& made = normalizer.steps_.emplace_back(Step{step.kind, step.text, {}});
    if (step.kind != NormalizerKind::kReplace) continue;
    SLUICE_ASSIGN_OR_RETURN(Regex pattern, Regex::Create(step.pattern));
    made.pattern.push_back(std::move(pattern));
  }
  return normalizer;
}

absl::Status Normalizer::Run(std::string* text, std::string* trusted) const {
  SLUICE_CHECK(trusted->empty() || trusted->size() == text->size());
  for (const Step& step : steps_) {
    switch (step.kind) {
      case NormalizerKind::kNfc:
      case NormalizerKind::kNfd:
      case NormalizerKind::kNfkc:
      case NormalizerKind::kNfkd:
        RunForm(step.kind == NormalizerKind::kNfkc || step.kind == NormalizerKind::kNfkd,
                step.kind == NormalizerKind::kNfc || step.kind == NormalizerKind::kNfkc, text, trusted);
        break;
      case NormalizerKind::kPrepend:
        if (text->empty()) break;
        text->insert(0, step.text);
        if (!trusted->empty()) trusted->insert(0, step.text.size(), trusted->front() != 0 ? trusted->front() : '\1');
        break;
      case NormalizerKind::kReplace:
        SLUICE_RETURN_IF_ERROR(RunReplace(step.pattern[0], step.text, text, trusted));
        break;
    }
    if (text->size() > kMaxTextBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("text: found ", text->size(), " bytes once normalized, expected at most ", kMaxTextBytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice
