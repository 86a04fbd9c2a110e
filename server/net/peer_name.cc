#include "server/net/peer_name.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {

bool NamePeer(int fd, const SocketAddress& peer, uint64_t connection) {
  // Nobody else can have taken a name that nobody can guess.
  static const std::string token = absl::StrCat(absl::Hex(std::random_device()(), absl::kZeroPad8),
                                                absl::Hex(std::random_device()(), absl::kZeroPad8));
  const std::string name = absl::StrCat("sluice-", token, "/", connection, "/", peer.ToString());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) return false;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a zero first: no file
  const auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0;
}

}  // namespace sluice
