#include "client/cli/line_editor.h"

#include <histedit.h>
#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace sluice::cli {
namespace {

constexpr int kHistoryLines = 1000;

// Terminals put a paste between these two if asked to; then its newlines do not end the line.
constexpr char kPasteOn[] = "\033[?2004h";
constexpr char kPasteOff[] = "\033[?2004l";
constexpr char kPasteBegin[] = "\\e[200~";  // in the notation of key bindings
constexpr wchar_t kPasteEnd[] = L"\033[201~";

bool UnderstandsEscapes() {
  const char* term = std::getenv("TERM");
  return term != nullptr && *term != '\0' && std::strcmp(term, "dumb") != 0;
}

}  // namespace

LineEditor::LineEditor(std::FILE* out, const std::filesystem::path& history_file)
    : out_(out),
      history_file_(history_file.string()),
      bracketed_paste_(UnderstandsEscapes()),
      edit_(el_init("sluice", stdin, out, stderr)),
      history_(history_init()) {
  HistEvent event;
  ::history(history_, &event, H_SETSIZE, kHistoryLines);
  ::history(history_, &event, H_SETUNIQUE, 1);
  if (!history_file_.empty()) ::history(history_, &event, H_LOAD, history_file_.c_str());

  el_set(edit_, EL_CLIENTDATA, this);
  el_set(edit_, EL_PROMPT, &LineEditor::Prompt);
  el_set(edit_, EL_HIST, ::history, history_);
  el_set(edit_, EL_EDITOR, "emacs");
  el_set(edit_, EL_SIGNAL, 1);  // a new window size, Ctrl-Z, and a sane terminal when the program is killed
  el_source(edit_, nullptr);    // ~/.editrc
  el_set(edit_, EL_ADDFN, "sluice-interrupt", "Throw the line away", &LineEditor::OnInterruptKey);
  el_set(edit_, EL_ADDFN, "sluice-paste", "Insert what the terminal pastes", &LineEditor::OnPaste);
  el_set(edit_, EL_BIND, "^C", "sluice-interrupt", nullptr);
  el_set(edit_, EL_BIND, kPasteBegin, "sluice-paste", nullptr);
  el_set(edit_, EL_ADDFN, "sluice-suspend", "Stop the program until fg", &LineEditor::OnSuspendKey);
  el_set(edit_, EL_BIND, "^Z", "sluice-suspend", nullptr);
  // No key raises a signal while a line is edited. (Undefining just `intr` does not last: libedit brings it back.)
  el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
}

LineEditor::~LineEditor() {
  history_end(history_);
  el_end(edit_);
}

LineEditor::Result LineEditor::Read(const std::string& prompt, std::string* line) {
  prompt_ = prompt;
  interrupted_ = false;
  if (bracketed_paste_) std::fputs(kPasteOn, out_);
  std::fflush(out_);
  el_set(edit_, EL_PREP_TERM, 1);  // before the prompt: who sees that may type Ctrl-C at once
  int count = 0;
  const char* text = el_gets(edit_, &count);
  if (text == nullptr && count < 0 && errno == EINTR) interrupted_ = true;
  if (bracketed_paste_) std::fputs(kPasteOff, out_);
  if (interrupted_) std::fputs("^C\n", out_);
  std::fflush(out_);
  if (interrupted_) return Result::kInterrupted;
  if (text == nullptr) return Result::kEnd;
  line->assign(text);
  if (!line->empty() && line->back() == '\n') line->pop_back();
  Remember(*line);
  return Result::kLine;
}

void LineEditor::Remember(const std::string& line) {
  if (line.find_first_not_of(" \t\n") == std::string::npos) return;
  HistEvent event;
  ::history(history_, &event, H_ENTER, line.c_str());
  // At once, for a program may end in many ways.
  if (!history_file_.empty()) ::history(history_, &event, H_SAVE, history_file_.c_str());
}

LineEditor& LineEditor::Of(editline* edit) {
  void* self = nullptr;
  el_get(edit, EL_CLIENTDATA, &self);
  return *static_cast<LineEditor*>(self);
}

char* LineEditor::Prompt(editline* edit) { return Of(edit).prompt_.data(); }

unsigned char LineEditor::OnInterruptKey(editline* edit, int) {
  Of(edit).interrupted_ = true;
  return CC_NEWLINE;
}

unsigned char LineEditor::OnSuspendKey(editline*, int) {
  kill(0, SIGTSTP);  // all of the job, as the terminal would; libedit sees to the terminal's modes
  return CC_REFRESH;
}

unsigned char LineEditor::OnPaste(editline* edit, int) {
  const std::wstring end = kPasteEnd;
  std::wstring pasted;
  for (wchar_t c; el_wgetc(edit, &c) == 1;) {
    pasted += c == L'\r' ? L'\n' : c;
    if (pasted.size() < end.size() || pasted.compare(pasted.size() - end.size(), end.size(), end) != 0) continue;
    pasted.resize(pasted.size() - end.size());
    break;
  }
  return el_winsertstr(edit, pasted.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

}  // namespace sluice::cli
