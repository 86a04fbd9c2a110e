// What CLI11 found wrong with a command line, in a sentence for people.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace sluice::cli {

// Which flag or word, what was found, what is expected, and the nearest name where one was mistyped. `app` is the root
// that threw `error` while it parsed `arguments`, those of the shell without the program's name.
std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments);

}  // namespace sluice::cli
