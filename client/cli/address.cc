#include "client/cli/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace sluice::cli {
namespace {

absl::Status Bad(const std::string& text, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("found '", text, "', expected ", expected));
}

constexpr char kForms[] = "host:port, such as localhost:50051, 10.0.0.7:50051, [::1]:50051 or dns:///name:50051";

// An IPv6 address, with the interface behind '%' if there is one.
bool IsIpv6(const std::string& text) {
  const size_t percent = text.find('%');
  in6_addr ignored;
  return inet_pton(AF_INET6, text.substr(0, percent).c_str(), &ignored) == 1 && percent != text.size() - 1;
}

bool IsHostName(absl::string_view text) {
  return !text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
}

bool IsGrpcName(absl::string_view text) {
  for (const char* scheme : {"dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "xds:"}) {
    // "dns:50051" is a port of a host called dns; gRPC would take the port for a host.
    if (absl::ConsumePrefix(&text, scheme)) return !text.empty() && !IsNumber(text);
  }
  return false;
}

// Takes http:// or grpc:// and the path / away.
absl::Status TakeScheme(const std::string& text, absl::string_view* rest) {
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string::npos) return absl::OkStatus();
  const std::string scheme = absl::AsciiStrToLower(text.substr(0, scheme_end));
  if (scheme == "https" || scheme == "grpcs") {
    return Bad(text, "an address without TLS: it is not supported here; a proxy in between can speak it");
  }
  if (scheme != "http" && scheme != "grpc") return Bad(text, kForms);
  rest->remove_prefix(scheme_end + 3);
  absl::ConsumeSuffix(rest, "/");
  return rest->empty() ? Bad(text, kForms) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ParseAddress(const std::string& text, int default_port) {
  if (IsGrpcName(text)) return text;
  absl::string_view rest = text;
  if (absl::Status status = TakeScheme(text, &rest); !status.ok()) return status;

  std::string host, port = absl::StrCat(default_port);
  const size_t colon = rest.rfind(':');
  if (IsIpv6(std::string(rest))) {
    host = absl::StrCat("[", rest, "]");
  } else if (absl::StartsWith(rest, "[")) {
    const size_t end = rest.find(']');
    if (end == absl::string_view::npos || !IsIpv6(std::string(rest.substr(1, end - 1)))) return Bad(text, kForms);
    host = std::string(rest.substr(0, end + 1));
    rest.remove_prefix(end + 1);
    if (absl::ConsumePrefix(&rest, ":")) {
      port = std::string(rest);
    } else if (!rest.empty()) {
      return Bad(text, kForms);
    }
  } else if (colon != absl::string_view::npos) {
    host = colon == 0 ? "localhost" : std::string(rest.substr(0, colon));
    port = std::string(rest.substr(colon + 1));
  } else if (IsNumber(rest)) {
    host = "localhost";
    port = std::string(rest);
  } else {
    host = std::string(rest);
  }
  if (!absl::StartsWith(host, "[") && !IsHostName(host)) return Bad(text, kForms);
  int number = 0;
  if (!IsNumber(port) || !absl::SimpleAtoi(port, &number) || number < 1 || number > 65535) {
    return Bad(text, "a port from 1 to 65535 behind the host, such as localhost:50051");
  }
  return absl::StrCat(host, ":", number);
}

}  // namespace sluice::cli
