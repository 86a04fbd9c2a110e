#include "client/cli/repl.h"

#include <editline/readline.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

constexpr char kHelp[] =
    "/set NAME VALUE   max_tokens, temperature, top_p, top_k, min_p, seed, system, stats (on|off); VALUE 'default' "
    "unsets\n"
    "/show             the settings and the conversation\n"
    "/clear            forget the conversation\n"
    "/save FILE        keep the conversation; /load FILE brings it back\n"
    "/bye              leave (as Ctrl-D)\n"
    "\"\"\"               begins and ends a message of several lines; Ctrl-C stops an answer\n";

template <class T>
bool Parse(const std::string& text, std::optional<T>* value) {
  if (text == "default") {
    value->reset();
    return true;
  }
  T parsed{};
  bool ok;
  if constexpr (std::is_floating_point_v<T>) {
    ok = absl::SimpleAtof(text, &parsed);
  } else {
    ok = absl::SimpleAtoi(text, &parsed);
  }
  if (ok) *value = parsed;
  return ok;
}

std::string Set(ChatSession& session, const std::string& name, const std::string& value) {
  GenerateFlags& flags = session.flags();
  const std::map<std::string, std::function<bool()>> setters = {
      {"max_tokens", [&] { return Parse(value, &flags.max_tokens); }},
      {"temperature", [&] { return Parse(value, &flags.temperature); }},
      {"top_p", [&] { return Parse(value, &flags.top_p); }},
      {"top_k", [&] { return Parse(value, &flags.top_k); }},
      {"min_p", [&] { return Parse(value, &flags.min_p); }},
      {"seed", [&] { return Parse(value, &flags.seed); }},
      {"system",
       [&] {
         session.SetSystem(value == "default" ? "" : value);
         return true;
       }},
      {"stats",
       [&] {
         flags.stats = value == "on";
         return value == "on" || value == "off" || value == "default";
       }},
  };
  const auto setter = setters.find(name);
  if (setter == setters.end()) return absl::StrCat("there is no setting '", name, "'; /help lists them\n");
  if (!setter->second()) return absl::StrCat("'", value, "' is no value for ", name, "\n");
  return "";
}

std::string Show(ChatSession& session) {
  const GenerateFlags& flags = session.flags();
  std::string text;
  const auto add = [&](const char* name, const auto& value) {
    absl::StrAppend(&text, name, " ", value ? absl::StrCat(*value) : "default", "\n");
  };
  add("max_tokens", flags.max_tokens);
  add("temperature", flags.temperature);
  add("top_p", flags.top_p);
  add("top_k", flags.top_k);
  add("min_p", flags.min_p);
  add("seed", flags.seed);
  absl::StrAppend(&text, "stats ", flags.stats ? "on" : "off", "\n");
  for (const auto& message : session.messages()) {
    absl::StrAppend(&text, v1::Role_Name(message.role()).substr(5), ": ", message.content(0).text(), "\n");
  }
  return text;
}

std::filesystem::path HistoryFile() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && *state != '\0') return std::filesystem::path(state) / "sluice" / "history";
  if (home != nullptr) return std::filesystem::path(home) / ".local" / "state" / "sluice" / "history";
  return {};
}

std::optional<std::string> ReadLine(const char* prompt) {
  char* line = readline(prompt);
  if (line == nullptr) return std::nullopt;
  std::string text = line;
  std::free(line);
  return text;
}

// A message may span lines between """ and """.
std::optional<std::string> ReadMessage() {
  std::optional<std::string> line = ReadLine("> ");
  if (!line || line->rfind("\"\"\"", 0) != 0) return line;
  std::string text = line->substr(3);
  for (;;) {
    if (absl::EndsWith(text, "\"\"\"")) return text.substr(0, text.size() - 3);
    line = ReadLine(". ");
    if (!line) return text;
    absl::StrAppend(&text, text.empty() ? "" : "\n", *line);
  }
}

}  // namespace

std::string RunReplCommand(ChatSession& session, const std::string& line, bool* leave) {
  const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2), absl::SkipEmpty());
  const std::string& command = words[0];
  const auto argument = [&](size_t i) { return words.size() > i ? words[i] : std::string(); };
  const auto file = [&] { return std::string(absl::StripAsciiWhitespace(line.substr(command.size()))); };
  if (command == "/bye") {
    *leave = true;
    return "";
  }
  if (command == "/clear") {
    session.Clear();
    return "";
  }
  if (command == "/show") return Show(session);
  if (command == "/help" || command == "/?") return kHelp;
  if (command == "/set") {
    return words.size() < 3 ? "usage: /set NAME VALUE\n" : Set(session, argument(1), argument(2));
  }
  if (command == "/save" || command == "/load") {
    if (file().empty()) return absl::StrCat("usage: ", command, " FILE\n");
    const absl::Status status = command == "/save" ? session.Save(file()) : session.Load(file());
    return status.ok() ? "" : absl::StrCat(status.message(), "\n");
  }
  return absl::StrCat("there is no command ", command, "; /help lists them\n");
}

int RunRepl(ChatSession& session) {
  std::cerr << Dim("/help for commands, Ctrl-D to leave") << std::endl;
  const std::filesystem::path history = HistoryFile();
  std::error_code ignored;
  if (!history.empty()) std::filesystem::create_directories(history.parent_path(), ignored);
  using_history();
  stifle_history(1000);
  if (!history.empty()) read_history(history.c_str());

  InterruptScope interrupts;  // at the prompt Ctrl-C does nothing
  bool leave = false;
  while (!leave) {
    const std::optional<std::string> message = ReadMessage();
    if (!message) break;
    if (absl::StripAsciiWhitespace(*message).empty()) continue;
    add_history(message->c_str());
    if (message->front() == '/') {
      std::cerr << RunReplCommand(session, *message, &leave) << std::flush;
    } else if (!IsValidUtf8(*message)) {
      std::cerr << "that was not valid UTF-8\n";
    } else {
      session.Ask(*message);
    }
  }
  if (!history.empty()) write_history(history.c_str());
  if (!leave) std::cout << std::endl;
  return kExitOk;
}

}  // namespace sluice::cli
