// The address of a server as people write it.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice::cli {

// The target for client::Client::Create: "host:port", or a gRPC name as it is. Taken are a host, host:port, :port, a
// port alone, an IPv6 address with or without brackets, http:// or grpc:// before any of them with or without a '/'
// behind, and the names of gRPC (dns:, ipv4:, ipv6:, unix:, unix-abstract:, xds:). What is left out is localhost and
// `default_port`. INVALID_ARGUMENT says what was found and what is expected, without the flag's name.
absl::StatusOr<std::string> ParseAddress(const std::string& text, int default_port);

}  // namespace sluice::cli
