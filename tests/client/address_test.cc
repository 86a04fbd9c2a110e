#include "client/cli/address.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

std::string Parsed(const std::string& text) {
  const auto address = ParseAddress(text, 50051);
  return address.ok() ? *address : absl::StrCat("refused: ", address.status().message());
}

TEST(ParseAddress, TakesWhatPeopleWrite) {
  const std::pair<const char*, const char*> cases[] = {
      {"localhost:50051", "localhost:50051"},
      {"localhost", "localhost:50051"},
      {"gpu-7.example.com:9", "gpu-7.example.com:9"},
      {"my_service", "my_service:50051"},
      {"10.0.0.7", "10.0.0.7:50051"},
      {"10.0.0.7:1234", "10.0.0.7:1234"},
      {":1234", "localhost:1234"},
      {"1234", "localhost:1234"},
      {"http://localhost:50051", "localhost:50051"},
      {"http://localhost:50051/", "localhost:50051"},
      {"HTTP://host", "host:50051"},
      {"grpc://host:1", "host:1"},
      {"http://[::1]:7/", "[::1]:7"},
      {"[::1]", "[::1]:50051"},
      {"[::1]:1234", "[::1]:1234"},
      {"::1", "[::1]:50051"},
      {"2001:db8::7", "[2001:db8::7]:50051"},
      {"fe80::1%eth0", "[fe80::1%eth0]:50051"},
      {"[fe80::1%eth0]:9", "[fe80::1%eth0]:9"},
      {"localhost:00080", "localhost:80"},
  };
  for (const auto& [text, target] : cases) EXPECT_EQ(Parsed(text), target) << text;
}

TEST(ParseAddress, LeavesGrpcsOwnNamesAlone) {
  for (const char* name : {"dns:///sluice:50051", "dns:sluice:50051", "ipv4:1.2.3.4:5", "ipv6:[::1]:5",
                           "unix:/run/sluice.sock", "unix:///run/sluice.sock", "unix-abstract:x", "xds:///sluice"}) {
    EXPECT_EQ(Parsed(name), name);
  }
  EXPECT_EQ(Parsed("dns:53"), "dns:53") << "a host called dns";
}

TEST(ParseAddress, RefusesTheRestAndSaysTheForm) {
  for (const char* text : {"",
                           " ",
                           "a b:1",
                           "host:",
                           "host:port",
                           "host:0",
                           "host:65536",
                           "host:-1",
                           "host:50051/path",
                           "http://",
                           "http:///",
                           "http://host/path",
                           "ftp://host",
                           "https://host:443",
                           "grpcs://host",
                           "user@host:1",
                           "[::1",
                           "[::1]x",
                           "[::1]:",
                           "[nonsense]:1",
                           "1:2:3",
                           "::1%",
                           "host:1:2",
                           "h\xC3\xB6st",
                           "-host",
                           "99999",
                           "[]:1",
                           ":",
                           "dns:",
                           "unix:",
                           "host:18446744073709551617"}) {
    const auto address = ParseAddress(text, 50051);
    ASSERT_FALSE(address.ok()) << text << " became " << *address;
    const std::string said(address.status().message());
    EXPECT_EQ(said.rfind(absl::StrCat("found '", text, "', expected "), 0), 0u) << said;
  }
  EXPECT_NE(Parsed("https://h").find("TLS"), std::string::npos);
  EXPECT_NE(Parsed("h:x").find("port from 1 to 65535"), std::string::npos);
  EXPECT_NE(Parsed("a b").find("localhost:50051"), std::string::npos);
}

}  // namespace
}  // namespace sluice::cli
