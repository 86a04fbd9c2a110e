// The conversation at the terminal: line editing, history, commands that begin with a slash.
#pragma once

#include <string>

#include "client/cli/chat_session.h"

namespace sluice::cli {

// Says which model answers at `server`, then goes on until /exit or Ctrl-D. Ctrl-C stops an answer, or throws away the
// line at the prompt, and never ends the program. Returns the exit code: an error at once if the server cannot be asked
// or its model cannot chat.
int RunRepl(ChatSession& session, const std::string& server);

// One command line such as "/set temperature 0". Returns what to print; sets *leave for /exit.
std::string RunReplCommand(ChatSession& session, const std::string& line, bool* leave);

}  // namespace sluice::cli
