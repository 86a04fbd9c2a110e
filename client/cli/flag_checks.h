// What the value of a flag or of the REPL's /set may be.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sluice::cli {

// "found 'warm', expected a number from 0 to 2", or empty if the text is such a value. The sentence leaves out the
// flag's name. Copies may be called from any thread.
using FlagCheck = std::function<std::string(const std::string&)>;

FlagCheck WholeNumber(int64_t min, uint64_t max);  // in decimal; both ends included
FlagCheck Number(double min, double max);          // both ends included
FlagCheck NumberAbove(double min, double max);     // `min` itself is not
FlagCheck OneOf(std::vector<std::string> values);
std::string CheckUtf8(const std::string& text);  // protobuf's strings must be

// "007" and "+7" as "7"; other texts as they are. (CLI11 would take a leading zero for octal.)
std::string Decimal(std::string text);

}  // namespace sluice::cli
