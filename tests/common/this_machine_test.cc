#include "common/rpc/this_machine.h"

#include <unistd.h>

#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(ThisMachineTest, LoopbackAndTheOwnNameAreIts) {
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof(name) - 1), 0);
  for (const std::string& host :
       {std::string("127.0.0.1"), std::string("localhost"), std::string("[::1]"), std::string(name),
        std::string(name) + ".example"}) {
    EXPECT_TRUE(IsThisMachine(host + ":7081")) << host;
  }
}

TEST(ThisMachineTest, OtherAddressesAndNamesAreNot) {
  // 192.0.2.0/24 and 2001:db8::/32 are nobody's: they stand in documents.
  for (const char* address : {"192.0.2.1:7081", "[2001:db8::1]:7081", "another.example:7081",
                              "ps-0", "", ":7081", "[]:7081"}) {
    EXPECT_FALSE(IsThisMachine(address)) << address;
  }
}

}  // namespace
}  // namespace tessera
