// The conversation at the terminal: line editing, history, commands that begin with a slash.
#pragma once

#include <string>

#include "client/cli/chat_session.h"

namespace sluice::cli {

// Until /bye or Ctrl-D. Ctrl-C stops an answer, or throws away the line at the prompt, and never ends the program.
void RunRepl(ChatSession& session);

// One command line such as "/set temperature 0". Returns what to print; sets *leave for /bye.
std::string RunReplCommand(ChatSession& session, const std::string& line, bool* leave);

}  // namespace sluice::cli
