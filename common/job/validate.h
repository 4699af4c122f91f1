#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace tessera {

// Checks everything about a job that can be known without its files and without its graph: names,
// ranges, references between fields, sizes of messages. INVALID_ARGUMENT starts with the field's
// path as it stands in the YAML ("tables[1].optimizer: ...") and says what was found, what was
// expected and what to do. Pure; safe on any message that a peer can send.
absl::Status ValidateJobSpec(const v1::JobSpec& spec);

// The part of that which a job passes that another version accepted, unless it asks for what this
// one does not have: an enum's value, a field, a loss.
absl::Status CheckKnown(const v1::JobSpec& spec);

// The job of the request, and what its task needs besides: PREDICT a checkpoint, an output and test
// files. What is wrong with the request itself is named by the request's field ("workers: ...").
absl::Status ValidateSubmit(const v1::SubmitRequest& request);

// Whether so many workers may train the job; 0: as many as there are. Named as by ValidateSubmit.
absl::Status ValidateWorkers(const v1::JobSpec& spec, uint32_t workers);

// An upper bound of the keys and rows that a batch of `samples` pulls from, or pushes to, all ps:
// as if no two samples had a key in common. `ids`: how many a record has in each of data.columns,
// in the mean; empty: one each, and of sequences max_length.
struct BatchRowBytes {
  uint64_t in_memory = 0;  // of a worker
  uint64_t on_wire = 0;
};
BatchRowBytes BatchRowBytesOf(const v1::JobSpec& spec, uint64_t samples,
                              absl::Span<const double> ids = {});

// Samples of a step that one of so many workers trains.
uint64_t SamplesOfAWorker(const v1::JobSpec& spec, uint32_t workers);

// Whether what one worker pushes to one ps at a step (BatchRowBytesOf) fits a push; keys are spread
// evenly among ps. With 0, not known, of either it is left to the ps, which refuse what does not.
absl::Status ValidatePush(const v1::JobSpec& spec, uint32_t workers, uint32_t ps,
                          absl::Span<const double> ids = {});

}  // namespace tessera
