#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "master/etcd/etcd_client.h"
#include "master/etcd/leadership.h"
#include "master/state/state_log.h"

namespace tessera::master {

// The state in etcd, under the keys /tessera/<cluster>/state/, for the master that leads. Every
// read and write is one transaction that checks that the master still leads. If not, it fails with
// UNAVAILABLE, writes nothing, and the leadership is told. Other errors are those of EtcdClient.
// Borrows both, which outlive the log.
//
// A batch beyond etcd's limits (128 operations, 1.5 MiB) is first stored in parts, becomes durable
// by one small write that marks it, and is then applied part by part. If applying is interrupted,
// the next call, or the next leader's first one, applies the batch again before anything else. A
// value of more than 1 MiB is stored in pieces, the first under its key, the others under
// /tessera/<cluster>/state_pieces/.
absl::StatusOr<std::unique_ptr<StateLog>> OpenEtcdStateLog(EtcdClient* etcd,
                                                           Leadership* leadership);

}  // namespace tessera::master
