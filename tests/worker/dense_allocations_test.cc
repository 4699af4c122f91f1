// A step takes no memory: neither pass of any model of the zoo, nor of the jobs in deploy/jobs. A
// program of its own, whose operator new counts.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/onnx_testing.h"

namespace {
// Of all threads, while it is not below 0. oneDNN's own are left out: every call of it makes a
// small map of its arguments, which nobody outside can spare it.
std::atomic<int64_t> allocations = -1;

void Count(const void* caller) {
  if (allocations < 0) return;
  Dl_info library;
  const bool in_onednn = dladdr(caller, &library) != 0 && library.dli_fname != nullptr &&
                         std::strstr(library.dli_fname, "libdnnl") != nullptr;
  if (!in_onednn) ++allocations;
}

void* Checked(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* Aligned(size_t bytes, std::align_val_t align) {
  const auto alignment = static_cast<size_t>(align);
  return Checked(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
}
}  // namespace

void* operator new(size_t bytes) {
  Count(__builtin_return_address(0));
  return Checked(std::malloc(bytes));
}
void* operator new[](size_t bytes) {
  Count(__builtin_return_address(0));
  return Checked(std::malloc(bytes));
}
void* operator new(size_t bytes, std::align_val_t align) {
  Count(__builtin_return_address(0));
  return Aligned(bytes, align);
}
void* operator new[](size_t bytes, std::align_val_t align) {
  Count(__builtin_return_address(0));
  return Aligned(bytes, align);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tessera::worker::testing {
namespace {

TEST(Allocations, AreCounted) {
  allocations = 0;
  const auto one = std::make_unique<int>(1);
  EXPECT_EQ(allocations.exchange(-1), 1);
}

// Two passes go before: products are prepared, and vectors grow, once.
TEST(Allocations, ThereIsNoneInAStepOfAnyModel) {
  std::vector<OnnxCase> cases = ZooCases();
  for (OnnxCase& job : JobCases()) cases.push_back(std::move(job));
  ASSERT_GT(cases.size(), 40u);
  for (const OnnxCase& test : cases) {
    SCOPED_TRACE(test.name);
    const auto model = NewModel(test.spec, InputsOf(test.spec).dense_width);
    ASSERT_TRUE(model.ok()) << model.status();
    Session session(**model);
    session.Fill(37, 1);
    const std::vector<float> labels(37 * std::max<size_t>((*model)->losses().size(), 1), 1);
    std::vector<uint64_t> groups(37);
    for (size_t i = 0; i < groups.size(); ++i) groups[i] = i / 5;
    const Targets targets(labels, static_cast<uint32_t>(labels.size() / 37), {}, groups);
    for (int pass = 0; pass < 3; ++pass) {
      allocations = pass < 2 ? -1 : 0;
      ForwardBackward(session.executor,
                      {.trained = session.trained,
                       .statistics = session.statistics,
                       .targets = targets,
                       .dropout_step = 5,
                       .trained_gradient = absl::MakeSpan(session.trained_gradient),
                       .statistics_gradient = absl::MakeSpan(session.statistics_gradient)});
    }
    EXPECT_EQ(allocations.exchange(-1), 0);
    for (int pass = 0; pass < 3; ++pass) {
      allocations = pass < 2 ? -1 : 0;
      session.executor.Forward(session.trained, session.statistics);
    }
    EXPECT_EQ(allocations.exchange(-1), 0) << "forward";
  }
}

}  // namespace
}  // namespace tessera::worker::testing
