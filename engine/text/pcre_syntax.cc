#include "engine/text/pcre_syntax.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

using absl::string_view;

// Unicode White_Space, the inside of a class.
constexpr string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// A property, what PCRE2 calls it, and the code points that it gained between Unicode 14 and Unicode 16
// (UnicodeData.txt, Scripts.txt). None of these properties lost any.
struct Property {
  string_view name;
  string_view pcre;
  string_view additions;
};
constexpr Property kProperties[] = {
    {"L", "L",
     R"(\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85})"
     R"(\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240}\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7})"
     R"(\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
     R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF}\x{1B132}\x{1B155})"
     R"(\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739})"
     R"(\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"Lu", "Lu", R"(\x{1C89}\x{A7CB}-\x{A7CC}\x{A7DA}\x{A7DC}\x{10D50}-\x{10D65})"},
    {"Ll", "Ll", R"(\x{1C8A}\x{A7CD}\x{A7DB}\x{10D70}-\x{10D85}\x{1DF25}-\x{1DF2A})"},
    {"Lt", "Lt", ""},
    {"Lm", "Lm", R"(\x{10D4E}\x{10D6F}\x{16D40}-\x{16D42}\x{16D6B}-\x{16D6C}\x{1E030}-\x{1E06D}\x{1E4EB})"},
    {"Lo", "Lo",
     R"(\x{105C0}-\x{105F3}\x{10D4A}-\x{10D4D}\x{10D4F}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240}\x{11380}-\x{11389})"
     R"(\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F02})"
     R"(\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F}\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D})"
     R"(\x{16D43}-\x{16D6A}\x{18CFF}\x{1B132}\x{1B155}\x{1E4D0}-\x{1E4EA}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739})"
     R"(\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {"M", "M",
     R"(\x{897}\x{CF3}\x{ECE}\x{10D69}-\x{10D6D}\x{10EFC}-\x{10EFF}\x{11241}\x{113B8}-\x{113C0}\x{113C2}\x{113C5})"
     R"(\x{113C7}-\x{113CA}\x{113CC}-\x{113D0}\x{113D2}\x{113E1}-\x{113E2}\x{11F00}-\x{11F01}\x{11F03})"
     R"(\x{11F34}-\x{11F3A}\x{11F3E}-\x{11F42}\x{11F5A}\x{13440}\x{13447}-\x{13455}\x{1611E}-\x{1612F}\x{1E08F})"
     R"(\x{1E4EC}-\x{1E4EF}\x{1E5EE}-\x{1E5EF})"},
    {"N", "N",
     R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59}\x{16130}-\x{16139})"
     R"(\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3}\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})"},
    {"Nd", "Nd",
     R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59}\x{16130}-\x{16139})"
     R"(\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})"},
    {"Nl", "Nl", ""},
    {"P", "P",
     R"(\x{1B4E}-\x{1B4F}\x{1B7F}\x{10D6E}\x{113D4}-\x{113D5}\x{113D7}-\x{113D8}\x{11B00}-\x{11B09}\x{11BE1})"
     R"(\x{11F43}-\x{11F4F}\x{16D6D}-\x{16D6F}\x{1E5FF})"},
    {"Pc", "Pc", ""},
    {"S", "S",
     R"(\x{2427}-\x{2429}\x{2FFC}-\x{2FFF}\x{31E4}-\x{31E5}\x{31EF}\x{10D8E}-\x{10D8F}\x{1CC00}-\x{1CCEF})"
     R"(\x{1CD00}-\x{1CEB3}\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9}\x{1F8B2}-\x{1F8BB})"
     R"(\x{1F8C0}-\x{1F8C1}\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89}\x{1FA8F}\x{1FAAD}-\x{1FAAF}\x{1FABB}-\x{1FABF})"
     R"(\x{1FAC6}\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9}\x{1FAF7}-\x{1FAF8})"
     R"(\x{1FBCB}-\x{1FBEF})"},
    {"Han", "sc:Han", R"(\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
};

// What may follow "(?". Everything else is unknown to one of the two, or does not mean the same.
constexpr string_view kGroups[] = {":", "=", "!", "<=", "<!", ">", "i:", "-i:", "i)", "-i)"};

class Translator {
 public:
  explicit Translator(string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    std::string out;
    while (i_ < pattern_.size()) {
      const char c = pattern_[i_];
      if (c == '\\') {
        SLUICE_RETURN_IF_ERROR(Escape(false, &out));
      } else if (c == '[') {
        SLUICE_RETURN_IF_ERROR(Class(&out));
      } else if (c == '(') {
        SLUICE_RETURN_IF_ERROR(Group(&out));
      } else if (c == '{') {
        SLUICE_RETURN_IF_ERROR(Braces(&out));
      } else {
        out.push_back(c);
        ++i_;
      }
    }
    return out;
  }

 private:
  string_view rest() const { return pattern_.substr(i_); }

  absl::Status Unsupported(string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern ", Quote(pattern_), ": ", what, " at byte ", i_, " is not supported"));
  }

  // An escape sequence; inside a class it becomes part of that class.
  absl::Status Escape(bool in_class, std::string* out) {
    if (rest().size() < 2) return Unsupported("a backslash at the end");
    const char c = rest()[1];
    const auto append_set = [&](string_view inside, bool negative) {
      absl::StrAppend(out, in_class ? "" : negative ? "[^" : "[", inside, in_class ? "" : "]");
    };
    const auto append_property = [&](string_view name, bool negative) -> absl::Status {
      const auto* property = std::find_if(std::begin(kProperties), std::end(kProperties),
                                          [&](const Property& p) { return p.name == name; });
      if (property == std::end(kProperties)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "pattern ", Quote(pattern_), ": the Unicode property at byte ", i_, " is not supported, expected one of ",
            absl::StrJoin(kProperties, ", ", [](std::string* s, const Property& p) { absl::StrAppend(s, p.name); })));
      }
      append_set(absl::StrCat("\\p{", property->pcre, "}", property->additions), negative);
      return absl::OkStatus();
    };
    if (in_class && (c == 'S' || c == 'D' || c == 'P')) return Unsupported("a complement inside a class");
    size_t length = 2;
    if (c == 's' || c == 'S') {
      append_set(kWhiteSpace, c == 'S');
    } else if (c == 'd' || c == 'D') {
      SLUICE_RETURN_IF_ERROR(append_property("Nd", c == 'D'));
    } else if (c == 'p' || c == 'P') {
      const size_t close = rest().find('}');
      if (rest().size() < 3 || rest()[2] != '{' || close == string_view::npos) return Unsupported("an escape");
      SLUICE_RETURN_IF_ERROR(append_property(rest().substr(3, close - 3), c == 'P'));
      length = close + 1;
    } else if (c == 'v') {  // the vertical tab; any vertical space to PCRE2
      absl::StrAppend(out, "\\x{b}");
    } else if (absl::ascii_isalnum(c) && string_view("rntfaexAzZ").find(c) == string_view::npos) {
      return Unsupported(absl::StrCat("\\", rest().substr(1, 1)));
    } else if (in_class && (c == 'A' || c == 'z' || c == 'Z')) {
      return Unsupported("an anchor inside a class");
    } else {
      // The braces of \x{41} are no quantifier.
      const size_t close = rest().find('}');
      if (c == 'x' && rest().substr(2, 1) == "{" && close != string_view::npos) length = close + 1;
      absl::StrAppend(out, rest().substr(0, length));
    }
    i_ += length;
    return absl::OkStatus();
  }

  absl::Status Group(std::string* out) {
    if (rest().size() >= 2 && rest()[1] == '*') return Unsupported("(*");
    if (rest().size() >= 2 && rest()[1] == '?') {
      const string_view after = rest().substr(2);
      const auto* kind = std::find_if(std::begin(kGroups), std::end(kGroups),
                                      [&](string_view group) { return after.substr(0, group.size()) == group; });
      if (kind == std::end(kGroups)) return Unsupported("this kind of group");
      absl::StrAppend(out, "(?", *kind);
      i_ += 2 + kind->size();
      return absl::OkStatus();
    }
    out->push_back('(');
    ++i_;
    return absl::OkStatus();
  }

  // A counted quantifier, or an ordinary {.
  absl::Status Braces(std::string* out) {
    const size_t close = rest().find('}');
    const string_view inside = close == string_view::npos ? string_view() : rest().substr(1, close - 1);
    const bool counts = !inside.empty() && std::all_of(inside.begin(), inside.end(),
                                                       [](char c) { return absl::ascii_isdigit(c) || c == ','; });
    if (counts && inside[0] == ',') return Unsupported("a quantifier without a lower bound");
    const size_t length = counts ? close + 1 : 1;
    if (counts && rest().size() > length && (rest()[length] == '+' || rest()[length] == '?')) {
      return Unsupported("a possessive or lazy counted quantifier");
    }
    absl::StrAppend(out, rest().substr(0, length));
    i_ += length;
    return absl::OkStatus();
  }

  // [...], where && intersects. Operands are plain items or one plain class.
  absl::Status Class(std::string* out) {
    ++i_;
    const bool negative = !rest().empty() && rest()[0] == '^';
    if (negative) ++i_;
    std::vector<std::string> operands(1);
    bool nested = false;  // the last operand is a class of its own
    for (;;) {
      if (rest().empty()) return Unsupported("a class without an end");
      if (rest()[0] == ']') break;
      if (rest().substr(0, 2) == "&&") {
        if (operands.back().empty()) return Unsupported("an empty part of a class");
        if (!nested) operands.back() = absl::StrCat("[", operands.back(), "]");
        operands.emplace_back();
        nested = false;
        i_ += 2;
      } else if (rest()[0] == '[') {
        if (!operands.back().empty()) return Unsupported("a class inside a class");
        SLUICE_RETURN_IF_ERROR(PlainClass(&operands.back()));
        nested = true;
      } else {
        if (nested) return Unsupported("a class inside a class");
        SLUICE_RETURN_IF_ERROR(Item(&operands.back()));
      }
    }
    if (operands.back().empty()) return Unsupported("an empty part of a class");
    ++i_;
    if (operands.size() == 1 && !nested) {
      absl::StrAppend(out, negative ? "[^" : "[", operands[0], "]");
      return absl::OkStatus();
    }
    if (negative || operands.size() == 1) return Unsupported("a class inside a class");
    if (!nested) operands.back() = absl::StrCat("[", operands.back(), "]");
    absl::StrAppend(out, "(?:");
    for (size_t k = 1; k < operands.size(); ++k) absl::StrAppend(out, "(?=", operands[k], ")");
    absl::StrAppend(out, operands[0], ")");
    return absl::OkStatus();
  }

  absl::Status PlainClass(std::string* out) {
    out->push_back('[');
    ++i_;
    if (!rest().empty() && rest()[0] == '^') {
      out->push_back('^');
      ++i_;
    }
    const size_t begin = out->size();
    while (!rest().empty() && rest()[0] != ']') {
      if (rest()[0] == '[' || rest().substr(0, 2) == "&&") return Unsupported("a class inside a class");
      SLUICE_RETURN_IF_ERROR(Item(out));
    }
    if (rest().empty() || out->size() == begin) return Unsupported("a class without an end");
    out->push_back(']');
    ++i_;
    return absl::OkStatus();
  }

  absl::Status Item(std::string* out) {
    if (rest()[0] == '\\') return Escape(true, out);
    out->push_back(rest()[0]);
    ++i_;
    return absl::OkStatus();
  }

  const string_view pattern_;
  size_t i_ = 0;
};

}  // namespace

absl::StatusOr<std::string> ToPcreSyntax(string_view pattern) { return Translator(pattern).Run(); }

}  // namespace sluice
