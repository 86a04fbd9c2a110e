// Writes seeds for fuzz_frame_guard into the folder argv[1]: honest calls and each kind of frame.
#include <fstream>
#include <string>

#include "tests/server/raw_http2.h"

namespace raw = sluice::raw;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string pieces = "\x03\x40\x01\xff";
  const std::string open = raw::Frame(raw::kHeaders, raw::kEndHeaders, 1, raw::RequestHeaders("/x"));
  const std::string seeds[] = {
      raw::Frame(raw::kSettings, 0, 0) + open + raw::Frame(raw::kData, raw::kEndStream, 1, raw::Message("abc")),
      open + raw::Frame(raw::kData, raw::kPadded, 1, "\x02" + raw::Message("abc") + "xx") + raw::Cancel(1),
      raw::Frame(raw::kHeaders, 0, 1, "abc") + raw::Frame(raw::kContinuation, raw::kEndHeaders, 1, "def"),
      raw::Frame(raw::kPing, 0, 0, "12345678") + raw::Frame(raw::kWindowUpdate, 0, 0, "1234") +
          raw::Frame(raw::kPriority, 0, 3, "12345") + raw::Frame(raw::kGoAway, 0, 0, "12345678")};
  int number = 0;
  for (const std::string& seed : seeds) {
    std::ofstream(std::string(argv[1]) + "/" + std::to_string(number++), std::ios::binary) << pieces << seed;
  }
  return 0;
}
