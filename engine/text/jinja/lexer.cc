#include "engine/text/jinja/lexer.h"

#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

std::string NormalizeNewlines(absl::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

absl::string_view StripRight(absl::string_view s) {
  while (!s.empty()) {
    const size_t last = PreviousChar(s, s.size());
    if (!IsSpace(CharAt(s, last))) break;
    s = s.substr(0, last);
  }
  return s;
}

bool AllSpace(absl::string_view s) { return StripRight(s).empty(); }

bool IsNameByte(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || (c & 0x80) != 0; }
bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

class Lexer {
 public:
  explicit Lexer(absl::string_view source) : s_(source) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (pos_ < s_.size()) SLUICE_RETURN_IF_ERROR(LexTextAndTag());
    Emit(TokenKind::kEnd, "", pos_);
    return std::move(tokens_);
  }

 private:
  absl::Status Fail(size_t at, absl::string_view what) { return SyntaxError(PositionAt(at), what); }

  Position PositionAt(size_t offset) {
    // Tokens come in order, so the walk goes on where it stopped.
    if (offset < counted_) counted_ = 0, here_ = {};
    for (; counted_ < offset; ++counted_) {
      if (s_[counted_] == '\n') {
        ++here_.line;
        here_.column = 1;
      } else {
        ++here_.column;
      }
    }
    return here_;
  }

  void Emit(TokenKind kind, absl::string_view text, size_t at) {
    tokens_.push_back({kind, std::string(text), PositionAt(at)});
  }

  // Text up to the next tag, then that tag.
  absl::Status LexTextAndTag() {
    const size_t begin = pos_;
    size_t open = begin;
    while ((open = s_.find('{', open)) != absl::string_view::npos &&
           (open + 1 >= s_.size() || !strchr("{%#", s_[open + 1]) || s_[open + 1] == '\0')) {
      ++open;
    }
    if (open == absl::string_view::npos) {
      EmitText(s_.substr(begin), begin);
      pos_ = s_.size();
      return absl::OkStatus();
    }
    const char type = s_[open + 1];
    pos_ = open + 2;
    const char sign = TakeSign();
    EmitText(TrimBeforeTag(s_.substr(begin, open - begin), sign, type == '{'), begin);
    if (type == '#') return SkipComment(open);
    if (type == '%' && TakeRawTag()) return LexRaw(open);
    Emit(type == '{' ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, "", open);
    return LexTag(type == '{' ? "}}" : "%}", open);
  }

  void EmitText(absl::string_view text, size_t at) {
    if (!text.empty()) Emit(TokenKind::kText, text, at);
  }

  char TakeSign() { return pos_ < s_.size() && (s_[pos_] == '-' || s_[pos_] == '+') ? s_[pos_++] : '\0'; }

  // `-` takes all whitespace before a tag; otherwise a block or comment that stands first on its line takes the blanks
  // before it, unless it is marked with `+`.
  absl::string_view TrimBeforeTag(absl::string_view text, char sign, bool print) const {
    if (sign == '-') return StripRight(text);
    if (sign == '+' || print) return text;
    const size_t newline = text.rfind('\n');
    if (newline == absl::string_view::npos && !at_line_start_) return text;
    const size_t line = newline == absl::string_view::npos ? 0 : newline + 1;
    return AllSpace(text.substr(line)) ? text.substr(0, line) : text;
  }

  // Takes the end of a tag, `close`, and the whitespace it eats: all after `-`, one newline after a block or comment.
  bool TakeEnd(absl::string_view close, bool block) {
    absl::string_view rest = s_.substr(pos_);
    if (absl::StartsWith(rest, "-") && absl::StartsWith(rest.substr(1), close)) {
      pos_ += 1 + close.size();
      while (pos_ < s_.size() && IsSpace(CharAt(s_, pos_))) pos_ += CharLength(s_, pos_);
    } else if (block && absl::StartsWith(rest, "+") && absl::StartsWith(rest.substr(1), close)) {
      pos_ += 1 + close.size();
    } else if (absl::StartsWith(rest, close)) {
      pos_ += close.size();
      if (block && pos_ < s_.size() && s_[pos_] == '\n') ++pos_;
    } else {
      return false;
    }
    at_line_start_ = s_[pos_ - 1] == '\n';
    return true;
  }

  absl::Status SkipComment(size_t open) {
    for (; pos_ < s_.size(); ++pos_) {
      if (TakeEnd("#}", /*block=*/true)) return absl::OkStatus();
    }
    return Fail(open, "this comment has no end");
  }

  void SkipSpace(size_t* pos) const {
    while (*pos < s_.size() && IsSpace(CharAt(s_, *pos))) *pos += CharLength(s_, *pos);
  }

  // After `{%` and its sign: takes ` raw %}` if that stands here.
  bool TakeRawTag() {
    size_t p = pos_;
    SkipSpace(&p);
    if (!absl::StartsWith(s_.substr(p), "raw")) return false;
    p += 3;
    SkipSpace(&p);
    const bool trim = absl::StartsWith(s_.substr(p), "-%}");
    if (!trim && !absl::StartsWith(s_.substr(p), "%}")) return false;
    pos_ = p + (trim ? 3 : 2);
    if (trim) SkipSpace(&pos_);
    at_line_start_ = s_[pos_ - 1] == '\n';
    return true;
  }

  absl::Status LexRaw(size_t open) {
    const size_t begin = pos_;
    for (size_t end = begin; (end = s_.find("{%", end)) != absl::string_view::npos; end += 2) {
      pos_ = end + 2;
      const char sign = TakeSign();
      SkipSpace(&pos_);
      if (!absl::StartsWith(s_.substr(pos_), "endraw")) continue;
      pos_ += 6;
      SkipSpace(&pos_);
      const absl::string_view text = TrimBeforeTag(s_.substr(begin, end - begin), sign, /*print=*/false);
      if (!TakeEnd("%}", /*block=*/true)) continue;
      EmitText(text, begin);
      return absl::OkStatus();
    }
    return Fail(open, "this raw block has no endraw");
  }

  // Tokens inside of a tag, up to and with its end. Inside of brackets `}}` closes dicts, not the tag.
  absl::Status LexTag(absl::string_view close, size_t open) {
    std::vector<char> brackets;
    while (pos_ < s_.size()) {
      const size_t at = pos_;
      if (brackets.empty() && TakeEnd(close, close == "%}")) {
        Emit(close == "}}" ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, "", at);
        return absl::OkStatus();
      }
      const char c = s_[pos_];
      if (IsSpace(CharAt(s_, pos_))) {
        SkipSpace(&pos_);
      } else if (c == '\'' || c == '"') {
        SLUICE_RETURN_IF_ERROR(LexString());
      } else if (IsDigit(c)) {
        LexNumber();
      } else if (IsNameByte(c)) {
        while (pos_ < s_.size() && IsNameByte(s_[pos_])) ++pos_;
        Emit(TokenKind::kName, s_.substr(at, pos_ - at), at);
      } else {
        SLUICE_RETURN_IF_ERROR(LexOperator(&brackets));
      }
    }
    return Fail(open, absl::StrCat("this tag has no '", close, "'"));
  }

  absl::Status LexOperator(std::vector<char>* brackets) {
    const absl::string_view rest = s_.substr(pos_);
    const char c = rest[0];
    size_t length = 0;
    for (absl::string_view two : {"//", "**", "==", "!=", "<=", ">="}) {
      if (absl::StartsWith(rest, two)) length = 2;
    }
    if (length == 0 && absl::StrContains("+-*/%~<>=.,:|()[]{};", absl::string_view(&c, 1))) length = 1;
    if (length == 0)
      return Fail(pos_, absl::StrCat("unexpected character '", rest.substr(0, CharLength(rest, 0)), "'"));
    if (c == '(') brackets->push_back(')');
    if (c == '[') brackets->push_back(']');
    if (c == '{') brackets->push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (brackets->empty()) return Fail(pos_, absl::StrCat("unexpected '", rest.substr(0, 1), "'"));
      if (brackets->back() != c) {
        return Fail(pos_, absl::StrCat("unexpected '", rest.substr(0, 1), "', expected '",
                                       std::string(1, brackets->back()), "'"));
      }
      brackets->pop_back();
    }
    Emit(TokenKind::kOperator, rest.substr(0, length), pos_);
    pos_ += length;
    return absl::OkStatus();
  }

  // Digits with single underscores between them, from `p` on.
  template <typename IsDigitFn>
  size_t DigitsEnd(size_t p, IsDigitFn is_digit) const {
    while (p < s_.size() && (is_digit(s_[p]) || (s_[p] == '_' && p + 1 < s_.size() && is_digit(s_[p + 1])))) ++p;
    return p;
  }

  void LexNumber() {
    const size_t begin = pos_;
    auto is_hex = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
    const char prefix = begin + 2 < s_.size() && s_[begin] == '0' ? absl::ascii_tolower(s_[begin + 1]) : '\0';
    bool is_float = false;
    if ((prefix == 'x' && is_hex(s_[begin + 2])) || ((prefix == 'o' || prefix == 'b') && IsDigit(s_[begin + 2]))) {
      pos_ = DigitsEnd(begin + 2, is_hex);
    } else {
      pos_ = DigitsEnd(begin, IsDigit);
      const bool after_dot = begin > 0 && s_[begin - 1] == '.';  // `a.0.1` indexes twice
      if (!after_dot && pos_ + 1 < s_.size() && s_[pos_] == '.' && IsDigit(s_[pos_ + 1])) {
        pos_ = DigitsEnd(pos_ + 1, IsDigit);
        is_float = true;
      }
      size_t exponent = pos_;
      if (!after_dot && exponent < s_.size() && absl::ascii_tolower(s_[exponent]) == 'e') {
        ++exponent;
        if (exponent < s_.size() && (s_[exponent] == '+' || s_[exponent] == '-')) ++exponent;
        if (exponent < s_.size() && IsDigit(s_[exponent])) {
          pos_ = DigitsEnd(exponent, IsDigit);
          is_float = true;
        }
      }
    }
    std::string digits;
    for (char c : s_.substr(begin, pos_ - begin)) {
      if (c != '_') digits.push_back(c);
    }
    Emit(is_float ? TokenKind::kFloat : TokenKind::kInteger, digits, begin);
  }

  absl::Status LexString() {
    const size_t begin = pos_;
    const char quote = s_[pos_++];
    std::string text;
    while (pos_ < s_.size() && s_[pos_] != quote) {
      if (s_[pos_] == '\\') {
        SLUICE_RETURN_IF_ERROR(LexEscape(&text));
      } else {
        text.push_back(s_[pos_++]);
      }
    }
    if (pos_ >= s_.size()) return Fail(begin, "this string has no end");
    ++pos_;
    Emit(TokenKind::kString, text, begin);
    return absl::OkStatus();
  }

  // One escape of a Python string literal; those that Python does not know stay as they are.
  absl::Status LexEscape(std::string* text) {
    const size_t begin = pos_;
    if (begin + 1 >= s_.size()) return Fail(begin, "this string has no end");
    const char c = s_[begin + 1];
    pos_ += 2;
    static constexpr absl::string_view kNames = "abfnrtv\\'\"";
    static constexpr absl::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t i = kNames.find(c); i != absl::string_view::npos) {
      text->push_back(kMeanings[i]);
    } else if (c == '\n') {
      // A backslash at the end of a line joins it with the next.
    } else if (c >= '0' && c <= '7') {
      size_t end = begin + 1;
      char32_t value = 0;
      while (end < s_.size() && end < begin + 4 && s_[end] >= '0' && s_[end] <= '7')
        value = value * 8 + (s_[end++] - '0');
      pos_ = end;
      AppendUtf8(value, text);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      char32_t value = 0;
      for (size_t i = 0; i < digits; ++i, ++pos_) {
        if (pos_ >= s_.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(s_[pos_])) || value > 0x10FFFF) {
          return Fail(begin, absl::StrCat("\\", std::string(1, c), " wants ", digits, " hexadecimal digits"));
        }
        value = value * 16 +
                static_cast<char32_t>(absl::ascii_isdigit(s_[pos_]) ? s_[pos_] - '0' : (s_[pos_] | 32) - 'a' + 10);
      }
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return Fail(begin, "this escape names no character");
      AppendUtf8(value, text);
    } else {
      text->push_back('\\');
      pos_ = begin + 1;  // what follows is read as usual (it may be a character of several bytes)
      text->push_back(s_[pos_++]);
    }
    return absl::OkStatus();
  }

  const absl::string_view s_;
  size_t pos_ = 0;
  bool at_line_start_ = true;  // the last tag ended with a newline
  size_t counted_ = 0;
  Position here_;
  std::vector<Token> tokens_;
};

}  // namespace

absl::Status SyntaxError(const Position& position, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("chat template, line ", position.line, ", column ", position.column, ": ", what));
}

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) {
  const std::string normalized = NormalizeNewlines(source);
  return Lexer(normalized).Run();
}

}  // namespace sluice::jinja
