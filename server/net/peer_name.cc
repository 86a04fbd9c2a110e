#include "server/net/peer_name.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

constexpr absl::string_view kPrefix = "sluice-";

// gRPC writes peers as URIs.
std::string PercentDecoded(absl::string_view text) {
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

}  // namespace

bool NamePeer(int fd, const SocketAddress& peer, uint64_t connection) {
  // Nobody else can have taken a name that nobody can guess.
  static const std::string token = absl::StrCat(absl::Hex(std::random_device()(), absl::kZeroPad8),
                                                absl::Hex(std::random_device()(), absl::kZeroPad8));
  const std::string name = absl::StrCat(kPrefix, token, "/", connection, "/", peer.ToString());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) return false;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a zero first: no file
  const auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0;
}

std::string PeerOf(absl::string_view grpc_peer) {
  const std::string peer = PercentDecoded(grpc_peer);
  const std::vector<std::string> parts = absl::StrSplit(peer, absl::MaxSplits('/', 2));
  if (parts.size() != 3 || !absl::StartsWith(parts[0], absl::StrCat("unix-abstract:", kPrefix))) return peer;
  return parts[2];
}

}  // namespace sluice
