// One line at the bottom of a terminal that is written again and again.
#pragma once

#include <string>

namespace sluice::cli {

// Not thread-safe. Writes nothing itself; its answers go to the terminal as they are.
class LiveLine {
 public:
  // `text`, cut to what a terminal of `width` columns shows on one line, in place of the text before. If the terminal
  // has become narrower since and broken that into several rows, all of them go.
  std::string Draw(const std::string& text, int width);
  // Takes the text away.
  std::string Clear(int width);

 private:
  int shown_columns_ = 0;
};

}  // namespace sluice::cli
