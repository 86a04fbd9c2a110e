// Reads back what server/net/peer_name.h has ServerContext::peer() say.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace sluice {

// gRPC writes peers as URIs.
inline std::string PercentDecoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    int byte = 0;
    if (text[i] == '%' && i + 2 < text.size() && absl::SimpleHexAtoi(text.substr(i + 1, 2), &byte)) {
      decoded += char(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// "127.0.0.1:4711" or "[fe80::1%eth0]:4711"; anything that was not named there as it is.
inline std::string PeerOf(absl::string_view grpc_peer) {
  const std::string peer = PercentDecoded(grpc_peer);
  const std::vector<std::string> parts = absl::StrSplit(peer, absl::MaxSplits('/', 2));
  if (parts.size() != 3 || !absl::StartsWith(parts[0], "unix-abstract:sluice-")) return peer;
  return parts[2];
}

}  // namespace sluice
