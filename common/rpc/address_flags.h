#pragma once

#include "CLI/CLI.hpp"

// Checks of addresses on the command line.
namespace tessera {

// "host:port" to listen at; port 0 takes a free one, no host means all of this machine's.
CLI::Validator ListenAddress();
// "host:port" of a server, or of several, separated by ','.
CLI::Validator ServerAddresses();

}  // namespace tessera
