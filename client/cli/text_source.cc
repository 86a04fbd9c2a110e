#include "client/cli/text_source.h"

#include <CLI/CLI.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cli/flag_checks.h"
#include "client/cli/terminal.h"

namespace sluice::cli {

TextOptions AddText(CLI::App& command, const std::string& name, std::string& value, const std::string& help) {
  TextOptions options;
  options.word = command.add_option(absl::AsciiStrToUpper(name), value, help)->type_name("")->check(CheckUtf8);
  options.flag = command.add_option("--" + name, value, "The same, as a flag; stdin is then not read")
                     ->type_name("TEXT")
                     ->check(CheckUtf8)
                     ->excludes(options.word);
  return options;
}

std::optional<std::string> ReadText(const TextOptions& options, const std::string& value, const std::string& what,
                                    bool may_be_empty) {
  const auto refuse = [](const std::string& message) {
    UsageError(message);
    return std::nullopt;
  };
  if (options.flag->count() > 0) return value;
  if (options.word->count() > 0 && value != "-") {
    if (!StdinHasText()) return value;
    return refuse(absl::StrCat("found a ", what, " after the command and text on stdin, expected one of them; with ",
                               options.flag->get_name(), " stdin is not read"));
  }
  const std::string give = "give it after the command, in quotes, or on stdin";
  if (StdinIsTerminal()) return refuse(absl::StrCat("found no ", what, "; ", give));
  std::string text;
  if (!ReadStdin(&text)) return refuse(absl::StrCat("the ", what, " on stdin is not valid UTF-8"));
  if (text.empty() && !may_be_empty) return refuse(absl::StrCat("found no ", what, ": stdin is empty; ", give));
  return text;
}

}  // namespace sluice::cli
