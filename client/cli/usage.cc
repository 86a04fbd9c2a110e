#include "client/cli/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/terminal.h"
#include "engine/base/nearest_name.h"

namespace sluice::cli {
namespace {

void AddFlagNames(const CLI::App& app, std::vector<std::string>* names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names->push_back("--" + name);
    for (const std::string& name : option->get_snames()) names->push_back("-" + name);
  }
}

// "; did you mean --top-p?", or nothing.
std::string Suggestion(const std::string& found, const std::vector<std::string>& names) {
  const std::string nearest = NearestName(found, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

std::string UnknownCommand(const CLI::App& app, const std::string& found) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  const std::string suggestion = Suggestion(found, names);
  return absl::StrCat("there is no command '", found, "'",
                      suggestion.empty() ? "; sluice --help lists them" : suggestion);
}

bool TakesText(const CLI::App& command) {
  return command.get_option_no_throw("--prompt") != nullptr || command.get_option_no_throw("--text") != nullptr;
}

// CLI11 reads -xyz as -x -y -z and leaves -yz over.
std::string AsTyped(const std::string& leftover, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const bool cluster = absl::StartsWith(argument, "-") && absl::EndsWith(argument, leftover.substr(1));
    if (argument == leftover || cluster) return argument;
  }
  return leftover;
}

std::string UnknownFlag(const CLI::App& app, const CLI::App* command, const std::string& typed) {
  const std::string name = typed.substr(0, typed.find('='));
  std::vector<std::string> names;
  AddFlagNames(app, &names);
  if (command == nullptr) return absl::StrCat("there is no flag ", name, " before a command", Suggestion(name, names));
  const bool takes_text = TakesText(*command);
  if (typed.find(' ') != std::string::npos && takes_text) {
    return absl::StrCat("'", typed, "' begins with '-', as flags do; put -- before a text like that");
  }
  const CLI::Option* own = command->get_option_no_throw(name);
  if (own != nullptr) return absl::StrCat(name, " belongs after the command: sluice ", command->get_name(), " ", name);
  AddFlagNames(*command, &names);
  const std::string suggestion = Suggestion(name, names);
  return absl::StrCat(
      command->get_name(), " has no flag ", name,
      suggestion.empty() ? absl::StrCat("; sluice ", command->get_name(), " --help lists them") : suggestion);
}

std::string Leftover(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> left = app.remaining(true);
  left.erase(std::remove(left.begin(), left.end(), "--"), left.end());
  if (left.empty()) return "found more arguments than expected";
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const CLI::App* command = commands.empty() ? nullptr : commands.front();
  const auto flag =
      std::find_if(left.begin(), left.end(), [](const std::string& text) { return text.size() > 1 && text[0] == '-'; });
  if (flag != left.end()) return UnknownFlag(app, command, AsTyped(*flag, arguments));
  if (command == nullptr) return UnknownCommand(app, left.front());
  const bool takes_text = TakesText(*command);
  return absl::StrCat("found '", left.front(), "', expected nothing more",
                      takes_text ? "; quote a text that has spaces, and give it once" : "");
}

// "--seed: 1 required UINT missing" and the like begin with the flag's name.
std::string FlagOf(const std::string& message) { return message.substr(0, message.find_first_of(": ")); }

}  // namespace

std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  const std::string message = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return Leftover(app, arguments);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string flag = FlagOf(message);
    if (absl::StrContains(message, "missing")) return absl::StrCat(flag, ": found nothing after it, expected a value");
    if (absl::StrContains(message, "override")) return absl::StrCat(flag, ": found a value, expected none");
    return absl::StrCat(flag, ": found more than one value, expected one");
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr && absl::StrContains(message, "--")) {
    // Of a flag without value: those with one have checks of their own.
    return absl::StrCat(FlagOf(message.substr(message.find("--"))), ": found a value, expected none");
  }
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    const std::string first = FlagOf(message), second = message.substr(message.rfind(' ') + 1);
    return absl::StrCat("found both ", first, " and ", second, ", expected one of them");
  }
  return message;
}

}  // namespace sluice::cli
