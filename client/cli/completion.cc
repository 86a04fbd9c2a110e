// sluice completion: a bash completion script, made from what the subcommands declare.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

std::string LongOptions(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) absl::StrAppend(&words, " --", name);
  }
  return words;
}

std::string BashScript(const CLI::App& app) {
  std::string names, cases;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    absl::StrAppend(&names, names.empty() ? "" : " ", command->get_name());
    absl::StrAppend(&cases, "    ", command->get_name(), ") words='", LongOptions(*command).substr(1),
                    " --server --admin --timeout' ;;\n");
  }
  return absl::StrCat(
      "_sluice() {\n"
      "  local command= word words\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \" ",
      names,
      " \" in *\" $word \"*) command=$word; break ;; esac\n"
      "  done\n"
      "  case $command in\n",
      cases, "    *) words='", names, LongOptions(app),
      "' ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
      "}\n"
      "complete -o default -F _sluice sluice\n");
}

}  // namespace

Command AddCompletion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for bash");
  command->footer("Use it with: source <(sluice completion)\n" + command->get_footer());
  return [&app] {
    std::cout << BashScript(app) << std::flush;
    return kExitOk;
  };
}

}  // namespace sluice::cli
