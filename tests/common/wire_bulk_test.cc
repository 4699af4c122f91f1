#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/wire/bulk_layout.h"
#include "common/wire/bulk_reader.h"
#include "common/wire/bulk_writer.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "tessera/v1/parameter_service.pb.h"
#include "tessera/v1/ring.pb.h"

namespace tessera::wire {
namespace {

// In slices of `cut` bytes, as a network may cut it.
grpc::ByteBuffer Cut(const std::string& bytes, size_t cut) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += cut) slices.emplace_back(bytes.substr(at, cut));
  return grpc::ByteBuffer(slices.data(), slices.size());
}
std::string Joined(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(slice.begin(), slice.end());
  return bytes;
}

v1::PushRequest Push() {
  v1::PushRequest push;
  push.mutable_header()->set_job_id("job-1");
  push.mutable_header()->set_generation(300);
  push.set_sequence(1234567);
  push.set_learning_rate_scale(0.5);
  for (uint32_t t = 0; t < 3; ++t) {
    v1::GradientBlock& block = *push.add_tables();
    block.set_table(100 * t);
    for (uint32_t i = 0; i < 30 * t; ++i) {
      block.mutable_keys()->push_back(static_cast<char>(i + t));
      block.mutable_gradients()->append(3, static_cast<char>(i - t));
    }
  }
  return push;
}

// The message as the reader has it, put together again.
std::string Whole(const BulkReader& reader, v1::PushRequest rest) {
  for (size_t b = 0; b < reader.blocks(); ++b) {
    v1::GradientBlock& block = *rest.mutable_tables(static_cast<int>(b));
    block.mutable_keys()->resize(reader.Size(b, 0));
    block.mutable_gradients()->resize(reader.Size(b, 1));
    reader.Copy(b, 0, block.mutable_keys()->data());
    reader.Copy(b, 1, block.mutable_gradients()->data());
  }
  return rest.SerializeAsString();
}

void ExpectBulk(const google::protobuf::Descriptor& message, const BulkLayout& layout,
                std::vector<std::string> names, const char* field_of_blocks = "tables") {
  const auto* blocks = message.FindFieldByNumber(layout.blocks);
  ASSERT_NE(blocks, nullptr);
  EXPECT_EQ(blocks->name(), field_of_blocks);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto* field = blocks->message_type()->FindFieldByNumber(layout.bulks[i]);
    ASSERT_NE(field, nullptr);
    EXPECT_EQ(field->name(), names[i]);
    EXPECT_EQ(field->type(), google::protobuf::FieldDescriptor::TYPE_BYTES);
  }
}

TEST(WireBulk, LayoutsNameTheBulkFieldsOfTheProtos) {
  ExpectBulk(*v1::PullRequest::descriptor(), kPullRequest, {"keys"});
  ExpectBulk(*v1::PullResponse::descriptor(), kPullResponse, {"values"});
  ExpectBulk(*v1::PushRequest::descriptor(), kPushRequest, {"keys", "gradients"});
  ExpectBulk(*v1::AssignRequest::descriptor(), kAssignRequest, {"keys", "gradients"});
  ExpectBulk(*v1::TakePartialResponse::descriptor(), kTakePartialResponse, {"sums"}, "partial");
}

TEST(WireBulk, ReadsWhatProtobufWritesHoweverItIsCut) {
  const std::string bytes = Push().SerializeAsString();
  for (size_t cut = 1; cut <= bytes.size(); cut += 1 + cut / 7) {
    v1::PushRequest rest;
    const auto reader = BulkReader::Read(Cut(bytes, cut), kPushRequest, &rest);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->message_bytes(), bytes.size());
    for (const v1::GradientBlock& block : rest.tables()) EXPECT_TRUE(block.keys().empty());
    EXPECT_EQ(Whole(*reader, rest), bytes);
  }
}

TEST(WireBulk, WritesWhatProtobufReads) {
  const v1::PushRequest push = Push();
  v1::PushRequest head = push;
  head.clear_tables();
  BulkWriter writer(kPushRequest, head);
  for (const v1::GradientBlock& block : push.tables()) {
    v1::GradientBlock small;
    small.set_table(block.table());
    const absl::Span<const char> bulks[] = {block.keys(), block.gradients()};
    writer.AddBlock(small, bulks);
  }
  v1::PushRequest read;
  ASSERT_TRUE(read.ParseFromString(Joined(writer.Finish())));
  EXPECT_EQ(read.SerializeAsString(), push.SerializeAsString());
}

TEST(WireBulk, SendsBuffersThatAreHandedOverInTheirPlaces) {
  v1::PullResponse expected;
  BulkWriter writer(kPullResponse, v1::PullResponse());
  for (const size_t size : {5u, 0u, 3000u}) {
    v1::RowBlock small;
    small.set_table(static_cast<uint32_t>(size));
    small.add_statuses()->set_status(v1::ROW_CREATED);
    Buffer values(size);
    for (size_t i = 0; i < size; ++i) values.data()[i] = static_cast<char>(i);
    *expected.add_tables() = small;
    expected.mutable_tables()->rbegin()->set_values(std::string(values.data(), size));
    writer.AddBlock(small, std::move(values));
  }
  v1::PullResponse read;
  ASSERT_TRUE(read.ParseFromString(Joined(writer.Finish())));
  EXPECT_EQ(read.DebugString(), expected.DebugString());
}

TEST(WireBulk, AMessageWithoutAnythingIsEmpty) {
  v1::PushRequest rest;
  const auto reader = BulkReader::Read(grpc::ByteBuffer(), kPushRequest, &rest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->blocks(), 0u);
  EXPECT_EQ(Joined(BulkWriter(kPushRequest, rest).Finish()), "");
}

// Whatever the reader accepts, protobuf reads the same way; what it refuses, it refuses with a
// typed error and no read beyond the message (the sanitizers watch).
TEST(WireBulk, DamagedMessagesAreRefusedOrReadAsProtobufReadsThem) {
  const std::string good = Push().SerializeAsString();
  std::mt19937_64 random(5);
  int refused = 0;
  const auto check = [&](const std::string& bytes) {
    v1::PushRequest rest;
    const auto reader = BulkReader::Read(Cut(bytes, 1 + random() % 50), kPushRequest, &rest);
    if (!reader.ok()) {
      ++refused;
      ASSERT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument) << reader.status();
      return;
    }
    v1::PushRequest expected;
    ASSERT_TRUE(expected.ParseFromString(bytes));
    v1::PushRequest whole;
    ASSERT_TRUE(whole.ParseFromString(Whole(*reader, rest)));
    expected.DiscardUnknownFields();
    whole.DiscardUnknownFields();
    ASSERT_EQ(whole.SerializeAsString(), expected.SerializeAsString());
  };
  for (size_t size = 0; size < good.size(); ++size) check(good.substr(0, size));
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
    }
    if (random() % 4 == 0) bytes.insert(random() % bytes.size(), 1 + random() % 9, char(random()));
    if (random() % 4 == 0) bytes.erase(random() % bytes.size(), 1 + random() % 9);
    check(bytes);
  }
  EXPECT_GT(refused, 1000);
  // Lengths near 2^64, where a sum would wrap around.
  for (const uint8_t last : {0x01, 0x7f}) {
    check(std::string("\x22") + std::string(9, '\xff') + static_cast<char>(last));
    check(std::string("\x22\x0c\x12") + std::string(9, '\xff') + static_cast<char>(last) + "x");
  }
}

}  // namespace
}  // namespace tessera::wire
