#include "engine/text/pcre_syntax.h"

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// Unicode White_Space, the inside of a class.
constexpr absl::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Code points that became letters and numbers between Unicode 14 and Unicode 16 (UnicodeData.txt); none ceased to be
// one.
constexpr absl::string_view kNewLetters =
    R"(\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85})"
    R"(\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240}\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7})"
    R"(\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF}\x{1B132}\x{1B155})"
    R"(\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739})"
    R"(\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
constexpr absl::string_view kNewNumbers =
    R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59}\x{16130}-\x{16139})"
    R"(\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3}\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";

}  // namespace

absl::StatusOr<std::string> ToPcreSyntax(absl::string_view pattern) {
  std::string out;
  bool in_class = false;
  // `inside` is the inside of a class; `negative` asks for its complement.
  const auto append_set = [&](absl::string_view inside, bool negative) {
    absl::StrAppend(&out, in_class ? "" : negative ? "[^" : "[", inside, in_class ? "" : "]");
  };
  for (size_t i = 0; i < pattern.size();) {
    const absl::string_view rest = pattern.substr(i);
    if (rest[0] != '\\' || rest.size() < 2) {
      if (rest[0] == '[') in_class = true;
      if (rest[0] == ']') in_class = false;
      out.push_back(rest[0]);
      i += 1;
    } else if (rest[1] == 's') {
      append_set(kWhiteSpace, false);
      i += 2;
    } else if (rest[1] == 'S') {
      if (in_class)
        return absl::InvalidArgumentError(absl::StrCat("pattern ", pattern, ": \\S inside a class is not supported"));
      append_set(kWhiteSpace, true);
      i += 2;
    } else if (rest[1] == 'p' || rest[1] == 'P') {
      const absl::string_view property = rest.substr(0, 5);
      if (property != "\\p{L}" && property != "\\p{N}") {
        return absl::InvalidArgumentError(absl::StrCat("pattern ", pattern, ": the Unicode property at byte ", i,
                                                       " is not supported, expected \\p{L} or \\p{N}"));
      }
      append_set(absl::StrCat(property, property == "\\p{L}" ? kNewLetters : kNewNumbers), false);
      i += property.size();
    } else {
      absl::StrAppend(&out, rest.substr(0, 2));
      i += 2;
    }
  }
  return out;
}

}  // namespace sluice
