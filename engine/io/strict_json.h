// JSON from files that nobody vouches for, read as events (so that memory follows what a reader keeps, not what a file
// claims, and nothing recurses). Every event is refused unless a reader says that it belongs there.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice {

// A reader overrides the events it takes, returning Unexpected(found) where they do not belong, and Refuse(problem) for
// values it does not like. Used for one text.
class StrictJson : public nlohmann::json_sax<nlohmann::json> {
 public:
  // `name` stands for the file in errors; `text` starts at byte `offset` of it. Errors give places as offsets, or as
  // lines and columns of a file that is all text (offset 0).
  StrictJson(std::string name, uint64_t offset) : name_(std::move(name)), offset_(offset) {}

  // The whole text must be one JSON object in UTF-8, white space around it allowed after it only. INVALID_ARGUMENT
  // names the file, the place, what was found and what was expected.
  absl::Status Read(absl::string_view text);

  bool null() override { return Unexpected("null"); }
  bool boolean(bool value) override { return Unexpected(value ? "true" : "false"); }
  bool number_integer(int64_t value) override;
  bool number_unsigned(uint64_t value) override;
  bool number_float(double value, const std::string& text) override;
  bool string(std::string& value) override;
  bool binary(nlohmann::json::binary_t&) override { return Unexpected("bytes"); }
  bool start_object(size_t) override { return Unexpected("an object"); }
  bool key(std::string& value) override = 0;
  bool end_object() override = 0;
  bool start_array(size_t) override { return Unexpected("a list"); }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string& last_token, const nlohmann::json::exception& error) final;

 protected:
  // Where the reader stands, "tensor 'x'" or "" for the text as a whole, and what it would take there.
  virtual std::string Where() const = 0;
  virtual std::string Expected() const = 0;

  // Both stop the reading and return false.
  bool Unexpected(absl::string_view found);
  bool Refuse(absl::string_view problem);
  bool Refuse(absl::Status status);

  const std::string& name() const { return name_; }

 private:
  std::string PlaceOf(uint64_t position) const;

  const std::string name_;
  const uint64_t offset_;
  absl::string_view text_;
  absl::Status status_;
};

}  // namespace sluice
