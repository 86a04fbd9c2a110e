// Where complete, chat and tokenize take their text from: the command line or stdin.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sluice::cli {

struct TextOptions {
  CLI::Option* word = nullptr;  // after the command: PROMPT
  CLI::Option* flag = nullptr;  // --prompt
};

// Declares the text in both forms, of which one may be given.
TextOptions AddText(CLI::App& command, const std::string& name, std::string& value, const std::string& help);

// The text of either option, else all of stdin but one newline at its end. "-" as a word after the command means
// stdin. A word beside text on stdin is refused, as one of them would be lost; the flag leaves stdin alone, for
// scripts. nullopt, after a sentence on stderr that calls the text `what`: also where there is no text (a terminal, or
// nothing on stdin unless `may_be_empty`), or stdin is not UTF-8.
std::optional<std::string> ReadText(const TextOptions& options, const std::string& value, const std::string& what,
                                    bool may_be_empty);

}  // namespace sluice::cli
