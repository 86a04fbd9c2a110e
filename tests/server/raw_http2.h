// HTTP/2 as bytes, for tests that send what no library would.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice::raw {

inline const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
enum Flag : uint8_t { kEndStream = 1, kAck = 1, kEndHeaders = 4, kPadded = 8 };

inline std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload = "") {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += char(payload.size() >> shift & 0xff);
  frame += char(type);
  frame += char(flags);
  for (const int shift : {24, 16, 8, 0}) frame += char(stream >> shift & 0xff);
  return frame + payload;
}

// A header as HPACK writes one that it does not index; name and value below 127 bytes.
inline std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + char(name.size()) + name + char(value.size()) + value;
}

inline std::string RequestHeaders(const std::string& path = "/sluice.v1.GenerationService/Complete") {
  std::string block;
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{":method", "POST"},
                                                                                   {":scheme", "http"},
                                                                                   {":path", path},
                                                                                   {":authority", "x"},
                                                                                   {"content-type", "application/grpc"},
                                                                                   {"te", "trailers"}}) {
    block += Header(name, value);
  }
  return block;
}

// A message as gRPC frames it.
inline std::string Message(const std::string& bytes) {
  std::string message(1, '\0');
  for (const int shift : {24, 16, 8, 0}) message += char(bytes.size() >> shift & 0xff);
  return message + bytes;
}

inline std::string Cancel(uint32_t stream) { return Frame(kRstStream, 0, stream, std::string("\0\0\0\x8", 4)); }

}  // namespace sluice::raw
