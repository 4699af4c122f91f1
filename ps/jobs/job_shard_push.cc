// JobShard: what changes rows.
#include <algorithm>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "ps/jobs/job_shard.h"
#include "ps/memory/or_exhausted.h"

namespace tessera::ps {

absl::Status JobShard::Push(PushCall call) {
  const v1::CallHeader& header = call.request.header();
  TESSERA_RETURN_IF_ERROR(CheckHeader(header));
  TESSERA_RETURN_IF_ERROR(CheckRank(header));
  TESSERA_ASSIGN_OR_RETURN(std::vector<GradientBlock> blocks, CheckPush(tables_, call));
  if (has_sync_) {
    bool completes = false;
    {
      absl::MutexLock lock(&mu_);
      completes = order_.ConfirmBefore(Rank(header.rank()), call.request.sequence());
    }
    // Comes first: the completed step may free the room that this push needs.
    if (completes) ApplyCompleteSteps();
  }
  {
    RankState& rank = *ranks_[header.rank()];
    absl::MutexLock lock(&rank.mu);
    // Checked again: a later incarnation may have called while this one waited.
    TESSERA_RETURN_IF_ERROR(CheckIncarnation(header));
    DropPartsOfEarlier(header, rank);
    if (call.request.parts() > 1) {
      TESSERA_RETURN_IF_ERROR(PushPart(std::move(call), std::move(blocks), rank));
    } else {
      const auto take_memory = [&call] {
        PushParts::Erased whole;
        whole.memory.push_back(std::move(call.memory));
        return whole;
      };
      TESSERA_RETURN_IF_ERROR(PushLocked(call, blocks, take_memory, rank));
      (void)rank.parts.Erase(call.request.sequence());
    }
  }
  ApplyCompleteSteps();
  if (!has_sync_) AnswerWaiting();
  return replaying_ ? absl::OkStatus() : SyncLog();
}

void JobShard::DropPartsOfEarlier(const v1::CallHeader& header, RankState& rank) {
  if (rank.parts_incarnation == header.incarnation()) return;
  rank.parts_incarnation = header.incarnation();
  rank.parts.EraseAll();
}

absl::Status JobShard::PushPart(PushCall call, std::vector<GradientBlock> blocks, RankState& rank) {
  const v1::PushRequest& request = call.request;
  const uint64_t sequence = request.sequence();
  uint64_t bulk_bytes = 0;
  for (size_t b = 0; b < blocks.size(); ++b)
    bulk_bytes += call.keys[b].size() + call.gradients[b].size();
  {
    absl::MutexLock lock(&mu_);
    TESSERA_ASSIGN_OR_RETURN(const PushVerdict verdict, CheckSequence(request));
    if (verdict == PushVerdict::kRepeat) return absl::OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(rank.parts.Check(request, bulk_bytes));
  ByteBudget::Hold held;  // by the first part, for all
  if (!rank.parts.Contains(sequence)) {
    absl::MutexLock lock(&mu_);
    TESSERA_ASSIGN_OR_RETURN(held, HoldPush(request, request.bulk_bytes()));
  }
  if (!rank.parts.Completes(request)) {
    if (rank.parts.ContainsPart(request)) return absl::OkStatus();
    absl::ReaderMutexLock cut(&cut_mu_);
    TESSERA_RETURN_IF_ERROR(LogPush(call));
    rank.parts.Add(request, bulk_bytes, std::move(blocks), std::move(call.memory), std::move(held));
    return absl::OkStatus();
  }
  // The last part is logged when nothing can refuse the push any more: a log that has all parts is
  // read as a push that was applied.
  rank.parts.Add(request, bulk_bytes, std::move(blocks), wire::Buffer(), std::move(held));
  // If there is no memory for what follows: the caller, who is told to come again, repeats the last
  // part only.
  absl::Cleanup take_back = [&] {
    rank.mu.AssertHeld();
    if (rank.parts.Contains(sequence)) rank.parts.TakeBack(request, bulk_bytes);
  };
  const auto take_memory = [&] {
    rank.mu.AssertHeld();
    PushParts::Erased erased = rank.parts.Erase(sequence);
    erased.memory.push_back(std::move(call.memory));
    return erased;
  };
  const std::vector<GradientBlock> whole = rank.parts.Blocks(sequence);
  const absl::Status pushed = PushLocked(call, whole, take_memory, rank);
  // Told to come again, the caller does so; after any other error nothing follows.
  if (!absl::IsResourceExhausted(pushed)) {
    std::move(take_back).Cancel();
    if (rank.parts.Contains(sequence)) take_memory();
  }
  return pushed;
}

absl::StatusOr<ByteBudget::Hold> JobShard::HoldPush(const v1::PushRequest& request,
                                                    uint64_t bytes) {
  ByteBudget* const room = options_.held_pushes;
  if (room == nullptr) return ByteBudget::Hold();
  std::optional<ByteBudget::Hold> held = room->Take(bytes);
  if (held.has_value()) return *std::move(held);
  // No step would end without the pushes that all wait for.
  if (replaying_ || order_.Awaits(request.sequence())) return room->TakeBeyond(bytes);
  // What other jobs hold must not keep this one from all pushes.
  if (!has_sync_) held = one_push_.Take(bytes);
  if (held.has_value()) return *std::move(held);
  return absl::ResourceExhaustedError(absl::StrCat(
      "job ", request_.job_id(), ", rank ", request.header().rank(), ": no room for push ",
      request.sequence(), " of ", bytes, " bytes: ", room->bytes(), " of ", room->max(),
      " are held on this ps for pushes that miss parts or wait for their step; push again later"));
}

absl::StatusOr<PushVerdict> JobShard::CheckSequence(const v1::PushRequest& request) const {
  TESSERA_RETURN_IF_ERROR(closed_);
  return order_.Check(request);
}

absl::Status JobShard::PushLocked(const PushCall& call, absl::Span<const GradientBlock> blocks,
                                  TakeMemory take_memory, RankState& rank) {
  const v1::PushRequest& request = call.request;
  ByteBudget::Hold held;
  {
    // A repeat is answered even if there is no room for it.
    absl::MutexLock lock(&mu_);
    TESSERA_ASSIGN_OR_RETURN(const PushVerdict verdict, CheckSequence(request));
    if (verdict == PushVerdict::kRepeat) return absl::OkStatus();
    if (has_sync_ && request.parts() <= 1) {
      TESSERA_ASSIGN_OR_RETURN(held, HoldPush(request, call.bytes));
    }
  }
  std::vector<std::vector<Table::Gradients>> parts(tables_.size());
  for (const GradientBlock& block : blocks) parts[block.table].push_back(block.gradients);
  for (size_t t = 0; t < tables_.size(); ++t) {
    TESSERA_RETURN_IF_ERROR(tables_[t]->WaitForRoom(parts[t], replaying_));
  }
  // Rows and the memory of what was applied change under one hold of cut_mu_: a checkpoint has both
  // or neither.
  absl::ReaderMutexLock cut(&cut_mu_);
  {
    absl::MutexLock lock(&mu_);
    TESSERA_ASSIGN_OR_RETURN(const PushVerdict verdict, CheckSequence(request));
    if (verdict == PushVerdict::kRepeat) return absl::OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(LogPush(call));
  // From here on only disk or memory can fail, and that ends the job: a push that some rows have
  // must not come again.
  const absl::Status applied = OrExhausted("a push", [&] {
    cut_mu_.AssertReaderHeld();
    return ApplyPush(request, blocks, parts, std::move(held), take_memory);
  });
  return applied.ok() ? applied : Fail(applied);
}

absl::Status JobShard::ApplyPush(const v1::PushRequest& request,
                                 absl::Span<const GradientBlock> blocks,
                                 absl::Span<const std::vector<Table::Gradients>> parts,
                                 ByteBudget::Hold held, TakeMemory take_memory) {
  PushParts::Erased taken = take_memory();
  std::vector<uint32_t> changed;  // tables
  for (uint32_t t = 0; t < tables_.size(); ++t) {
    if (!tables_[t]->sync() && !parts[t].empty()) changed.push_back(t);
  }
  TESSERA_RETURN_IF_ERROR(
      ApplyToTables(/*sync=*/false, parts, request.sequence(), request.learning_rate_scale()));
  GradientReducer::Push of_sync;
  if (has_sync_) {
    of_sync.learning_rate_scale = request.learning_rate_scale();
    of_sync.memory = std::move(taken.memory);
    of_sync.held = std::move(request.parts() > 1 ? taken.held : held);
    for (const GradientBlock& block : blocks) {
      if (tables_[block.table]->sync()) of_sync.blocks.push_back(block);
    }
  }
  absl::MutexLock lock(&mu_);
  order_.Add(request, changed, std::move(of_sync), options_.clock->Monotonic());
  return absl::OkStatus();
}

void JobShard::ConfirmAll(uint64_t step) {
  {
    absl::MutexLock lock(&mu_);
    order_.ConfirmAll(step);
  }
  ApplyCompleteSteps();
}

void JobShard::ApplyCompleteSteps() {
  while (true) {
    std::vector<GradientReducer::Push> pushes;  // freed after pulls have been answered
    {
      absl::MutexLock lock(&mu_);
      // One thread at a time applies; it also takes steps that become complete meanwhile.
      if (applying_ || !closed_.ok() || !order_.Complete()) return;
      applying_ = true;
    }
    {
      absl::ReaderMutexLock cut(&cut_mu_);
      const absl::Status applied = OrExhausted("the pushes of a step", [&] {
        cut_mu_.AssertReaderHeld();
        return ApplyStep(pushes);
      });
      if (!applied.ok()) {
        (void)Fail(applied);
        return;
      }
    }
    AnswerWaiting();
  }
}

absl::Status JobShard::ApplyStep(std::vector<GradientReducer::Push>& pushes) {
  uint64_t step = 0;
  {
    absl::MutexLock lock(&mu_);
    step = order_.next_step();
    pushes = order_.Take();
  }
  std::vector<std::vector<Table::Gradients>> parts(tables_.size());
  for (const GradientReducer::Push& push : pushes) {
    for (const GradientBlock& block : push.blocks) {
      parts[block.table].push_back(block.gradients);
    }
  }
  TESSERA_RETURN_IF_ERROR(
      ApplyToTables(/*sync=*/true, parts, step, pushes.front().learning_rate_scale));
  absl::MutexLock lock(&mu_);
  order_.Applied();
  applying_ = false;
  return absl::OkStatus();
}

absl::Status JobShard::ApplyToTables(bool sync,
                                     absl::Span<const std::vector<Table::Gradients>> parts,
                                     uint64_t step, double learning_rate_scale) {
  updates_begun_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t reserved = ReserveCopies(sync, parts);
  absl::Status status;
  for (size_t t = 0; t < tables_.size() && status.ok(); ++t) {
    Table& table = *tables_[t];
    if (table.sync() != sync || (parts[t].empty() && !table.every_row())) continue;
    try {
      status = table.Apply(parts[t], step, learning_rate_scale);
    } catch (const std::bad_alloc&) {
      status = NoMemory("new rows", table);
    }
  }
  if (reserved > 0) cut_room_->Return(reserved);
  updates_ended_.fetch_add(1, std::memory_order_relaxed);
  return status;
}

absl::StatusOr<v1::ProgressResponse> JobShard::GetProgress(const v1::ProgressRequest& request) {
  const v1::CallHeader& header = request.header();
  TESSERA_RETURN_IF_ERROR(CheckHeader(header));
  TESSERA_RETURN_IF_ERROR(CheckRank(header));
  v1::ProgressResponse response;
  {
    // Waits for a push of an earlier incarnation that is under way.
    RankState& rank = *ranks_[header.rank()];
    absl::MutexLock pushing(&rank.mu);
    TESSERA_RETURN_IF_ERROR(CheckIncarnation(header));
    // Others may wait for this room, and this rank for them.
    DropPartsOfEarlier(header, rank);
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(closed_);
    TESSERA_ASSIGN_OR_RETURN(response, order_.TakeOver(Rank(header.rank()), request.confirmed()));
  }
  ApplyCompleteSteps();
  if (!has_sync_) AnswerWaiting();
  // The answer acknowledges records that may still be on their way to the disk.
  TESSERA_RETURN_IF_ERROR(SyncLog());
  return response;
}

absl::Status JobShard::Assign(const v1::AssignRequest& request) {
  TESSERA_RETURN_IF_ERROR(CheckHeader(request.header()));
  TESSERA_RETURN_IF_ERROR(Closed());
  std::vector<GradientBlock> blocks;
  for (const v1::GradientBlock& block : request.tables()) {
    // A string's bytes are aligned for numbers of 64 bits: on the heap to 16, within it to 8.
    TESSERA_ASSIGN_OR_RETURN(const GradientBlock values,
                             CheckGradients(tables_, block, block.keys(), block.gradients(),
                                            /*assigned=*/true));
    if (block.changes()) {
      return absl::InvalidArgumentError(absl::StrCat("table ", tables_[block.table()]->name(),
                                                     ": an assignment has values; found changes"));
    }
    blocks.push_back(values);
  }
  {
    absl::ReaderMutexLock cut(&cut_mu_);
    TESSERA_RETURN_IF_ERROR(LogMessage(push_log::Kind::kAssign, request));
    for (const GradientBlock& block : blocks) {
      try {
        TESSERA_RETURN_IF_ERROR(tables_[block.table]->Assign(block.gradients));
      } catch (const std::bad_alloc&) {
        return Fail(NoMemory("assigned rows", *tables_[block.table]));
      }
    }
  }
  return replaying_ ? absl::OkStatus() : SyncLog();
}

}  // namespace tessera::ps
