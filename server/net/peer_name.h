// How the address of a client reaches gRPC's handlers. gRPC does not see the client's own socket but the guarded end of
// a pair, whose other end bears a name made here; ServerContext::peer() says it, and PeerOf reads it back.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "server/net/socket_address.h"

namespace sluice {

// Gives the UNIX socket `fd` a name, unique on the machine, that tells `peer`. False: it cannot be obtained.
bool NamePeer(int fd, const SocketAddress& peer, uint64_t connection);

// What ServerContext::peer() says, as "127.0.0.1:4711" or "[fe80::1%eth0]:4711". A connection's peer() as a whole is
// unique among all that the server ever had.
std::string PeerOf(absl::string_view grpc_peer);

}  // namespace sluice
