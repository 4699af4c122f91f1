#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/plan/training_plan.h"

// Plans of three files.
namespace tessera::master {

inline v1::FileRecords File(const std::string& path, uint64_t records) {
  v1::FileRecords file;
  file.set_path(path);
  file.set_records(records);
  file.set_bytes(records * 10);
  return file;
}

inline PlanOptions Options(bool sync, uint32_t workers) {
  PlanOptions options;
  options.sync = sync;
  options.workers = workers;
  options.batch_size = 32;
  options.seed = 7;
  options.shard_records = 50;
  options.shuffle_window_records = 300;
  options.epochs = 2;
  options.first_unit_batches = 2;
  return options;
}

inline const std::vector<v1::FileRecords>& Files() {
  static const auto* files =
      new std::vector<v1::FileRecords>{File("a", 1234), File("b", 1), File("c", 777)};
  return *files;
}
inline constexpr uint64_t kRecords = 1234 + 1 + 777;

inline std::unique_ptr<TrainingPlan> Plan(const PlanOptions& options,
                                          const v1::Position& start = {}) {
  auto plan = NewTrainingPlan(options, Files(), start);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

}  // namespace tessera::master
