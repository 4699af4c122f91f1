#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera {

// Checks everything about a job that needs neither its files nor its graph: names, ranges,
// references between fields, sizes of messages. INVALID_ARGUMENT starts with the field's path as in
// the YAML ("tables[1].optimizer: ...") and says what was found, what was expected and what to do.
// Pure; safe on any message that a peer can send.
absl::Status ValidateJobSpec(const v1::JobSpec& spec);

// The checks of ValidateJobSpec that a job which another version accepted can fail: whether it uses
// something that this version lacks, an enum's value, a field or a loss.
absl::Status CheckKnown(const v1::JobSpec& spec);

// Checks the request's job and what its task needs besides: PREDICT needs a checkpoint, an output
// and test files, EVALUATE a checkpoint and files to measure it on. An error of the request itself
// starts with the request's field ("workers: ...").
absl::Status ValidateSubmit(const v1::SubmitRequest& request);

// Checks that `workers` workers may train the job; 0: as many as there are. Errors are as in
// ValidateSubmit.
absl::Status ValidateWorkers(const v1::JobSpec& spec, uint32_t workers);

// An upper bound on the bytes of keys and rows that a batch of `samples` pulls from, or pushes to,
// all ps, as if no two samples shared a key. `ids`: the mean number of ids per record in each of
// data.columns; empty: one each, and max_length for sequences.
struct BatchRowBytes {
  uint64_t in_memory = 0;  // in a worker's memory
  uint64_t on_wire = 0;
};
BatchRowBytes BatchRowBytesOf(const v1::JobSpec& spec, uint64_t samples,
                              absl::Span<const double> ids = {});

// The most samples of a step that one of `workers` workers trains.
uint64_t SamplesOfAWorker(const v1::JobSpec& spec, uint32_t workers);

// Checks that what one worker pushes to one ps in a step (BatchRowBytesOf) fits in a push, with
// keys spread evenly among ps. With `workers` or `ps` 0, not known, nothing is checked: the ps
// refuse pushes that are too large.
absl::Status ValidatePush(const v1::JobSpec& spec, uint32_t workers, uint32_t ps,
                          absl::Span<const double> ids = {});

// Checks that the job may train on `workers` workers and `ps` ps; 0: as many as there are.
// ValidateWorkers, ValidatePush, and whether batches can be shared out and filled. Errors are as in
// ValidateSubmit.
absl::Status ValidateProcesses(const v1::JobSpec& spec, uint32_t workers, uint32_t ps);

}  // namespace tessera
