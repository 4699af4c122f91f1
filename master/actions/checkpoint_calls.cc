#include "master/actions/checkpoint_calls.h"

#include <algorithm>
#include <utility>

#include "common/job/defaults.h"
#include "common/job/job_tables.h"
#include "common/version.h"

namespace tessera::master {
namespace {

v1::WriteCheckpointRequest RequestOf(const v1::JobRecord& record, const std::string& folder,
                                     v1::WriteCheckpointRequest::Phase phase) {
  v1::WriteCheckpointRequest request;
  request.set_job_id(record.status().job_id());
  request.set_generation(record.status().generation());
  request.set_folder(folder);
  request.set_phase(phase);
  return request;
}

v1::WriteCheckpointRequest RequestOf(const NewCheckpoint& checkpoint, uint32_t part,
                                     v1::WriteCheckpointRequest::Phase phase) {
  v1::WriteCheckpointRequest request = RequestOf(*checkpoint.record, checkpoint.folder, phase);
  request.set_step(checkpoint.position.step());
  request.set_base(checkpoint.base);
  request.set_part(part);
  request.set_parts(static_cast<uint32_t>(checkpoint.ps.size()));
  return request;
}

}  // namespace

CutCheckpoint CutOf(const NewCheckpoint& checkpoint) {
  CutCheckpoint cut;
  cut.folder = checkpoint.folder;
  for (uint32_t part = 0; part < checkpoint.ps.size(); ++part) {
    v1::WriteCheckpointRequest request =
        RequestOf(checkpoint, part, v1::WriteCheckpointRequest::CUT);
    request.set_early(checkpoint.early);
    *request.mutable_confirmed() = {checkpoint.pushes.begin(), checkpoint.pushes.end()};
    cut.calls.emplace_back(checkpoint.ps[part], std::move(request));
  }
  return cut;
}

WriteCheckpoint WriteOf(const NewCheckpoint& checkpoint) {
  const v1::JobStatus& job = checkpoint.record->status();
  WriteCheckpoint write;
  write.folder = checkpoint.folder;
  v1::CheckpointManifest& manifest = write.manifest;
  manifest.set_version(kVersion);
  manifest.set_job_id(job.job_id());
  *manifest.mutable_spec() = job.spec();
  manifest.set_step(checkpoint.position.step());
  manifest.set_unix_ms(absl::ToUnixMillis(checkpoint.at));
  manifest.set_partition_count(checkpoint.partition_count);
  for (const v1::PsTable& table : TablesOf(job.spec())) {
    v1::CheckpointTable* out = manifest.add_tables();
    *out->mutable_spec() = table.spec();
    out->set_dense(table.dense());
    out->set_fixed_rate(table.fixed_rate());
  }
  *manifest.mutable_position() = checkpoint.position;
  *manifest.mutable_evaluations() = {checkpoint.evaluations.begin(), checkpoint.evaluations.end()};
  for (uint32_t part = 0; part < checkpoint.ps.size(); ++part) {
    write.calls.emplace_back(checkpoint.ps[part],
                             RequestOf(checkpoint, part, v1::WriteCheckpointRequest::WRITE));
  }
  return write;
}

bool OutOfStep(absl::Span<const v1::WriteCheckpointResponse> parts) {
  bool whole = false;
  bool increment = false;
  for (const v1::WriteCheckpointResponse& part : parts) {
    const auto has_rows = [](uint64_t rows) { return rows > 0; };
    if (std::none_of(part.rows().begin(), part.rows().end(), has_rows)) continue;
    uint64_t bytes = 0;
    for (const v1::CheckpointFile& file : part.files()) bytes += file.bytes();
    (part.written_bytes() == bytes ? whole : increment) = true;
  }
  return whole && increment;
}

TellCommitted TellOf(const v1::JobRecord& record, absl::Span<const RunNode> ps,
                     const std::string& folder) {
  TellCommitted telling;
  for (const RunNode& node : ps) {
    telling.calls.emplace_back(node,
                               RequestOf(record, folder, v1::WriteCheckpointRequest::COMMITTED));
  }
  return telling;
}

PruneCheckpoints PruneOf(const v1::JobRecord& record, const std::string& folder,
                         const std::string& best) {
  PruneCheckpoints prune;
  prune.job_folder = record.status().job_id();
  prune.folder = folder;
  prune.keep = KeptCheckpoints(record.status().spec().checkpoint());
  if (!best.empty()) prune.keep_besides.push_back(best);
  prune.damaged = {record.damaged().begin(), record.damaged().end()};
  return prune;
}

}  // namespace tessera::master
