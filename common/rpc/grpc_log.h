#pragma once

namespace tessera {

// Sends what gRPC and protobuf log on their own to our log, at debug: what matters to the operator
// comes back as a status and is told by whoever got it. A failed assertion of gRPC is told as
// critical. For the whole process; may be called again.
void RouteGrpcLog();

}  // namespace tessera
