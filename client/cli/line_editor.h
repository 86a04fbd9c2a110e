// Lines from a terminal: editing, a history that outlives the program, pasted text of several lines as one message.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

// libedit's own types, declared so that its header stays out of ours.
struct editline;
struct history;

namespace sluice::cli {

// Not thread-safe. While a line is read Ctrl-C is a key and raises no signal; Ctrl-Z suspends as everywhere.
class LineEditor {
 public:
  enum class Result {
    kLine,
    kInterrupted,  // Ctrl-C: the line is thrown away
    kEnd,          // Ctrl-D on an empty line, or the terminal has gone
  };

  // Reads stdin and shows prompt and line on `out`. The history lives in `history_file`; empty: in memory only.
  LineEditor(std::FILE* out, const std::filesystem::path& history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // *line comes without its newline; inner newlines are those of a paste.
  Result Read(const std::string& prompt, std::string* line);

 private:
  static unsigned char OnInterruptKey(editline* edit, int key);
  static unsigned char OnSuspendKey(editline* edit, int key);
  static unsigned char OnPaste(editline* edit, int key);
  static char* Prompt(editline* edit);
  static LineEditor& Of(editline* edit);
  void Remember(const std::string& line);

  std::FILE* const out_;
  const std::string history_file_;
  const bool bracketed_paste_;
  editline* const edit_;
  history* const history_;
  std::string prompt_;
  bool interrupted_ = false;
};

}  // namespace sluice::cli
