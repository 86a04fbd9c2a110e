#include "tests/gpu/report.h"

#include <cerrno>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::cuda_testing {
namespace {

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string Number(double value) { return std::isfinite(value) ? absl::StrFormat("%.6g", value) : "null"; }

}  // namespace

absl::StatusOr<Report> Report::Open(const std::string& json_path) {
  if (json_path.empty()) return Report(nullptr);
  std::FILE* file = std::fopen(json_path.c_str(), "w");
  if (file == nullptr) return absl::InternalError(absl::StrCat(json_path, ": ", std::strerror(errno)));
  return Report(file);
}

Report::~Report() {
  if (file_ != nullptr) std::fclose(file_);
}

void Report::Add(const Measured& m) {
  const double share = m.floor_seconds / m.seconds;
  std::string people = absl::StrFormat("%-10s %-44s %11.2f us  floor %11.2f us  %5.2f", m.part, m.name, m.seconds * 1e6,
                                       m.floor_seconds * 1e6, share);
  std::string json =
      absl::StrCat("{\"part\": ", Quoted(m.part), ", \"name\": ", Quoted(m.name), ", \"us\": ", Number(m.seconds * 1e6),
                   ", \"floor_us\": ", Number(m.floor_seconds * 1e6), ", \"share\": ", Number(share));
  for (const auto& [key, value] : m.numbers) {
    absl::StrAppendFormat(&people, "  %s %g", key, value);
    absl::StrAppend(&json, ", ", Quoted(key), ": ", Number(value));
  }
  std::printf("%s\n", people.c_str());
  std::fflush(stdout);
  Write(json + "}\n");
}

void Report::Note(const std::string& part, const std::string& text) {
  std::printf("%-10s %s\n", part.c_str(), text.c_str());
  std::fflush(stdout);
  Write(absl::StrCat("{\"part\": ", Quoted(part), ", \"note\": ", Quoted(text), "}\n"));
}

void Report::Write(const std::string& line) {
  if (file_ == nullptr) return;
  std::fputs(line.c_str(), file_);
  std::fflush(file_);
}

}  // namespace sluice::cuda_testing
