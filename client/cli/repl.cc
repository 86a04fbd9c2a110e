#include "client/cli/repl.h"

#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/line_editor.h"
#include "client/cli/terminal.h"

namespace sluice::cli {
namespace {

constexpr char kHelp[] =
    "/set NAME VALUE   max_tokens, temperature, top_p, top_k, min_p, seed, stop, system, stats (on|off);\n"
    "                  VALUE 'default' unsets\n"
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
      {"stop",
       [&] {
         flags.stop = value == "default" ? std::vector<std::string>() : std::vector<std::string>{Unescape(value)};
         return true;
       }},
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
  for (const std::string& stop : flags.stop) absl::StrAppend(&text, "stop ", absl::CEscape(stop), "\n");
  absl::StrAppend(&text, "stats ", flags.stats ? "on" : "off", "\n");
  for (const auto& message : session.messages()) {
    absl::StrAppend(&text, v1::Role_Name(message.role()).substr(5), ": ", message.content(0).text(), "\n");
  }
  return text;
}

// "~/chat.json" as a shell would have it.
std::string ExpandHome(const std::string& path) {
  const char* home = std::getenv("HOME");
  return absl::StartsWith(path, "~/") && home != nullptr ? home + path.substr(1) : path;
}

// A message may span lines between """ and """; then it is no command whatever it begins with.
LineEditor::Result ReadMessage(LineEditor& editor, std::string* message, bool* quoted) {
  constexpr char kQuotes[] = "\"\"\"";
  LineEditor::Result result = editor.Read("> ", message);
  *quoted = result == LineEditor::Result::kLine && absl::StartsWith(*message, kQuotes);
  if (!*quoted) return result;
  message->erase(0, 3);
  while (!absl::EndsWith(*message, kQuotes)) {
    std::string line;
    result = editor.Read(". ", &line);
    if (result != LineEditor::Result::kLine) return result;
    absl::StrAppend(message, message->empty() ? "" : "\n", line);
  }
  message->resize(message->size() - 3);
  return result;
}

}  // namespace

std::string RunReplCommand(ChatSession& session, const std::string& line, bool* leave) {
  const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2), absl::SkipEmpty());
  const std::string& command = words[0];
  const auto argument = [&](size_t i) { return words.size() > i ? words[i] : std::string(); };
  const auto file = [&] { return ExpandHome(std::string(absl::StripAsciiWhitespace(line.substr(command.size())))); };
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

void RunRepl(ChatSession& session) {
  std::cerr << Dim("/help for commands, Ctrl-D to leave") << std::endl;
  LineEditor editor(StderrIsTerminal() ? stderr : stdout, StateFile("history"));
  InterruptScope interrupts;  // a Ctrl-C that comes just after an answer does nothing
  bool leave = false;
  while (!leave) {
    std::string message;
    bool quoted;
    const LineEditor::Result result = ReadMessage(editor, &message, &quoted);
    if (result == LineEditor::Result::kEnd) {
      std::cerr << std::endl;
      return;
    }
    if (result == LineEditor::Result::kInterrupted || absl::StripAsciiWhitespace(message).empty()) continue;
    if (message.front() == '/' && !quoted) {
      std::cerr << RunReplCommand(session, message, &leave) << std::flush;
    } else if (!IsValidUtf8(message)) {
      std::cerr << "that was not valid UTF-8\n";
    } else {
      session.Ask(message);
    }
  }
}

}  // namespace sluice::cli
