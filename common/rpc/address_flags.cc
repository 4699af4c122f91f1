#include "common/rpc/address_flags.h"

#include <string>

#include "common/rpc/address.h"

namespace tessera {

CLI::Validator ListenAddress() {
  return CLI::Validator(
      [](const std::string& text) { return std::string(ParseAddress(text).status().message()); },
      "HOST:PORT");
}

CLI::Validator ServerAddresses() {
  return CLI::Validator(
      [](const std::string& text) { return std::string(CheckServerAddresses(text).message()); },
      "HOST:PORT");
}

}  // namespace tessera
