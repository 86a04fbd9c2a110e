// Takes connections off a listener, whatever accept() says: the errors of single connections are passed over, and when
// the process is out of file descriptors a reserve lets it refuse connections rather than leave them hanging.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/net/connection_stats.h"
#include "server/net/listener.h"
#include "server/net/refused_sockets.h"
#include "server/net/unique_fd.h"

namespace sluice {

// Raises the limit of open files to what the system allows and returns it. Once, at start.
int RaiseDescriptorLimit();
// The limit that there is.
int DescriptorLimit();

struct AcceptedConnection {
  UniqueFd fd;  // non-blocking, without delay
  SocketAddress peer;
};

// One thread.
class Acceptor {
 public:
  // `name` is for log lines; a connection takes so many descriptors in all; `stats` outlives the acceptor.
  Acceptor(Listener listener, std::string name, int descriptors_per_connection, ConnectionStats* stats);

  const Listener& listener() const { return listener_; }

  // The next connection; none: there is none at present, or none can be obtained. Counts all that it meets.
  std::optional<AcceptedConnection> Next();

  // False from the moment when a connection could not be obtained, until the next one can. If `must_wait`, the listener
  // stays readable and asking again at once would be in vain.
  bool able();
  // Refuses a connection that Next gave, or ends one that was evicted: its socket stays open and unread for a while.
  void Refuse(UniqueFd fd);
  // Closes those whose time is over; true if some are left. Call every now and then while there are.
  bool CloseRefused();

  // No more connections: clients that come are refused by the system. The address stays known.
  void Close() {
    listener_.Close();
    refused_.CloseAll();
  }
  // The descriptors for the rest of a connection could not be obtained.
  void OnNoDescriptors();
  bool must_wait() const { return must_wait_; }

 private:
  void OnError(int error);
  // False: there was no connection.
  bool RefuseWithReserve();

  Listener listener_;
  const std::string name_;
  const int descriptors_per_connection_;
  ConnectionStats* const stats_;
  UniqueFd reserve_;
  RefusedSockets refused_;
  bool able_ = true;
  bool must_wait_ = false;
  int64_t last_error_ns_ = 0;
};

}  // namespace sluice
