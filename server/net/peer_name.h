// How the address of a client reaches gRPC's handlers. gRPC does not see the client's own socket but the guarded end of
// a pair, whose other end bears a name made here. ServerContext::peer() says it as
// "unix-abstract:sluice-TOKEN/CONNECTION/ADDRESS", percent-encoded; as a whole it is unique among all that the server
// ever had.
#pragma once

#include <cstdint>

#include "server/net/socket_address.h"

namespace sluice {

// Gives the UNIX socket `fd` a name, unique on the machine, that tells `peer`. False: it cannot be obtained.
bool NamePeer(int fd, const SocketAddress& peer, uint64_t connection);

}  // namespace sluice
