#include "client/cli/repl.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
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
#include "client/cli/flag_checks.h"
#include "client/cli/line_editor.h"
#include "client/cli/model_state.h"
#include "client/cli/quiet_keys.h"
#include "client/cli/terminal.h"
#include "engine/base/nearest_name.h"
#include "engine/base/wrap_text.h"

namespace sluice::cli {
namespace {

constexpr char kHelp[] =
    "/set NAME VALUE   max_tokens, temperature, top_p, top_k, min_p, seed, stop, system, stats (on|off);\n"
    "                  VALUE 'default' resets\n"
    "/show             the settings and the conversation\n"
    "/clear            forget the conversation\n"
    "/save FILE        save the conversation; /load FILE loads it\n"
    "/exit             leave, as do /quit, /bye and Ctrl-D\n"
    "\"\"\"               begins and ends a message of several lines; Ctrl-C stops an answer\n";

const std::vector<std::string>& Commands() {
  static const auto& commands = *new std::vector<std::string>{"/set",  "/show", "/clear", "/save", "/load",
                                                              "/exit", "/quit", "/bye",   "/help", "/?"};
  return commands;
}

std::string Unknown(const std::string& what, const std::string& found, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(found, known);
  return absl::StrCat("there is no ", what, " ", found, "; ",
                      nearest.empty() ? "/help lists them" : absl::StrCat("did you mean ", nearest, "?"), "\n");
}

// Sets *value if the text is a number as NumberChecks wants it for `name`; returns what is wrong otherwise.
template <class T>
std::string SetNumber(const std::string& name, const std::string& text, std::optional<T>* value) {
  if (text == "default") {
    value->reset();
    return "";
  }
  if (const std::string wrong = NumberChecks().at(name)(text); !wrong.empty()) return wrong;
  T parsed{};
  if constexpr (std::is_floating_point_v<T>) {
    (void)absl::SimpleAtof(text, &parsed);  // the check has parsed it
  } else {
    (void)absl::SimpleAtoi(text, &parsed);
  }
  *value = parsed;
  return "";
}

std::string Set(ChatSession& session, const std::string& name, const std::string& value) {
  GenerateFlags& flags = session.flags();
  // Each returns what is wrong with the value.
  const std::map<std::string, std::function<std::string()>> setters = {
      {"max_tokens", [&] { return SetNumber(name, value, &flags.max_tokens); }},
      {"temperature", [&] { return SetNumber(name, value, &flags.temperature); }},
      {"top_p", [&] { return SetNumber(name, value, &flags.top_p); }},
      {"top_k", [&] { return SetNumber(name, value, &flags.top_k); }},
      {"min_p", [&] { return SetNumber(name, value, &flags.min_p); }},
      {"seed", [&] { return SetNumber(name, value, &flags.seed); }},
      {"stop",
       [&] {
         flags.stop = value == "default" ? std::vector<std::string>() : std::vector<std::string>{Unescape(value)};
         return std::string();
       }},
      {"system",
       [&] {
         session.SetSystem(value == "default" ? "" : value);
         return std::string();
       }},
      {"stats",
       [&] {
         const std::string wrong = OneOf({"on", "off", "default"})(value);
         if (wrong.empty()) flags.stats = value == "on";
         return wrong;
       }},
  };
  const auto setter = setters.find(name);
  if (setter == setters.end()) {
    std::vector<std::string> names;
    for (const auto& [known, set] : setters) names.push_back(known);
    return Unknown("setting", name, names);
  }
  const std::string wrong = setter->second();
  return wrong.empty() ? "" : absl::StrCat(name, ": ", wrong, "\n");
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

// What a person can do now about an answer that is not whole; empty for one that is.
std::string Advice(const StreamResult& result, const GenerateFlags& flags) {
  const std::string reason = client::GetErrorDetails(result.status).reason;
  if (reason == "CONTEXT_LENGTH_EXCEEDED" || reason == "KV_CAPACITY_EXCEEDED") {
    return "the conversation has become too long for the model: /clear begins a new one";
  }
  const auto& choices = result.answer.choices();
  const bool cut = std::any_of(choices.begin(), choices.end(), [](const v1::Choice& choice) {
    return choice.finish_reason() == v1::FINISH_REASON_LENGTH;
  });
  if (!cut) return "";
  const uint32_t n = result.answer.usage().completion_tokens() / uint32_t(choices.size());
  if (flags.max_tokens && n >= *flags.max_tokens) {
    return absl::StrCat("cut off at max_tokens (", n, "); /set max_tokens N changes it");
  }
  return "cut off: the context is full; /clear begins a new conversation";
}

// One answer, without the keys that are typed meanwhile among its text: they are there at the next prompt.
void Answer(ChatSession& session, const std::string& message) {
  StreamResult result;
  {
    const QuietKeys quiet;
    result = session.Ask(message);
  }
  const std::string advice = Advice(result, session.flags());
  if (!advice.empty()) std::cerr << Dim(WrapText(advice, size_t(TerminalWidth(STDERR_FILENO)))) << std::endl;
}

// Tells who answers. An error if nobody can.
absl::Status Greet(const ChatSession& session, const std::string& server) {
  constexpr std::chrono::seconds kPatience{5};
  const absl::StatusOr<v1::Model> model = session.FindModel(kPatience);
  if (!model.ok()) return model.status();
  std::string line = absl::StrCat(model->id(), " at ", server);
  const std::string state = StateSentence(model->state());
  if (!state.empty()) absl::StrAppend(&line, ": ", state);
  if (model->state() == v1::MODEL_STATE_FAILED) return absl::UnavailableError(line);
  if (model->state() != v1::MODEL_STATE_LOADING && !model->has_chat_template()) {
    return absl::FailedPreconditionError(
        absl::StrCat(line, " has no chat template; sluice complete continues a text with it"));
  }
  std::cerr << Dim(StderrIsTerminal() ? Printable(line) : line) << "\n"
            << Dim("/help for commands, Ctrl-D to leave") << std::endl;
  return absl::OkStatus();
}

}  // namespace

std::string RunReplCommand(ChatSession& session, const std::string& line, bool* leave) {
  const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2), absl::SkipEmpty());
  const std::string& command = words[0];
  const auto argument = [&](size_t i) { return words.size() > i ? words[i] : std::string(); };
  const auto file = [&] { return ExpandHome(std::string(absl::StripAsciiWhitespace(line.substr(command.size())))); };
  if (command == "/exit" || command == "/quit" || command == "/bye") {
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
  return Unknown("command", command, Commands());
}

int RunRepl(ChatSession& session, const std::string& server) {
  if (absl::Status status = Greet(session, server); !status.ok()) return Report(status);
  LineEditor editor(StderrIsTerminal() ? stderr : stdout, StateFile("history"));
  InterruptScope interrupts;  // a Ctrl-C that comes just after an answer does nothing
  bool leave = false;
  while (!leave) {
    std::string message;
    bool quoted;
    const LineEditor::Result result = ReadMessage(editor, &message, &quoted);
    if (result == LineEditor::Result::kEnd) {
      std::cerr << std::endl;
      break;
    }
    if (result == LineEditor::Result::kInterrupted || absl::StripAsciiWhitespace(message).empty()) continue;
    if (message.front() == '/' && !quoted) {
      std::cerr << RunReplCommand(session, message, &leave) << std::flush;
    } else if (!IsValidUtf8(message)) {
      std::cerr << "that was not valid UTF-8\n";
    } else {
      Answer(session, message);
    }
  }
  return kExitOk;
}

}  // namespace sluice::cli
