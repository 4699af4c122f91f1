#pragma once

namespace tessera {

// Sends the log lines of gRPC and protobuf to our log at debug level: errors that matter to the
// operator come back as a status, and the code that gets the status reports it. Fatal lines, such
// as gRPC's failed assertions, are logged as critical. For the whole process; may be called again.
void RouteGrpcLog();

}  // namespace tessera
