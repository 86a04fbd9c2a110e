// Splits a chat template into tokens, with the whitespace rules Hugging Face renders with: trim_blocks and
// lstrip_blocks are on, one newline at the end of the template is dropped, every line ending becomes "\n".
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::jinja {

enum class TokenKind {
  kText,        // outside of tags; `text` is what is printed
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,        // `text`; keywords too
  kString,      // `text` with the escapes resolved
  kInteger,     // `text` without underscores, in base 10, or with 0x, 0o, 0b in front
  kFloat,
  kOperator,  // `text`: one of + - * / // % ** ~ == != < <= > >= = . , : | ( ) [ ] { } ;
  kEnd,
};

struct Position {
  size_t line = 1;
  size_t column = 1;  // in bytes
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  Position position;

  bool Is(TokenKind k, absl::string_view t) const { return kind == k && text == t; }
  bool IsName(absl::string_view t) const { return Is(TokenKind::kName, t); }
  bool IsOperator(absl::string_view t) const { return Is(TokenKind::kOperator, t); }
};

// INVALID_ARGUMENT "chat template, line L, column C: ...".
absl::Status SyntaxError(const Position& position, absl::string_view what);

// The tokens of `source`, with kEnd as the last one. Comments are gone. INVALID_ARGUMENT naming line and column.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

}  // namespace sluice::jinja
