#include "worker/card/card_seat.h"

#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

// Of this run of the test alone.
std::vector<std::string> Cards(size_t count) {
  std::vector<std::string> cards;
  for (size_t c = 0; c < count; ++c) {
    cards.push_back(std::to_string(::getpid()) + ":" + std::to_string(c));
  }
  return cards;
}

std::unique_ptr<CardSeat> Take(const std::vector<std::string>& cards) {
  auto seat = CardSeat::Take(cards);
  EXPECT_TRUE(seat.ok()) << seat.status();
  return seat.ok() ? *std::move(seat) : nullptr;
}

TEST(CardSeatTest, EachTakesTheCardWithTheFewest) {
  const std::vector<std::string> cards = Cards(3);
  std::vector<std::unique_ptr<CardSeat>> seats;
  for (const size_t card : {0, 1, 2, 0, 1, 2, 0}) {
    seats.push_back(Take(cards));
    EXPECT_EQ(seats.back()->card(), card);
  }
  // Card 1 has one left then, the others three and two.
  seats.erase(seats.begin() + 4);
  EXPECT_EQ(Take(cards)->card(), 1);
  seats.clear();
  EXPECT_EQ(Take(cards)->card(), 0);
}

TEST(CardSeatTest, NoTwoOfManyAtOnceHaveTheSameSeat) {
  const std::vector<std::string> cards = Cards(4);
  std::vector<std::unique_ptr<CardSeat>> seats(16);
  std::vector<std::thread> threads;
  for (auto& seat : seats) threads.emplace_back([&] { seat = Take(cards); });
  for (std::thread& thread : threads) thread.join();
  std::vector<int> workers(cards.size());
  for (const auto& seat : seats) ++workers[seat->card()];
  EXPECT_EQ(workers, std::vector<int>(4, 4));
}

TEST(CardSeatTest, AProcessThatIsKilledHasNone) {
  const std::vector<std::string> cards = Cards(2);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const auto seat = CardSeat::Take(cards);
    const char card = seat.ok() && (*seat)->card() == 0 ? '0' : '?';
    (void)!::write(ready[1], &card, 1);
    ::pause();
  }
  char card = ' ';
  ASSERT_EQ(::read(ready[0], &card, 1), 1);
  EXPECT_EQ(card, '0');
  EXPECT_EQ(Take(cards)->card(), 1);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  EXPECT_EQ(Take(cards)->card(), 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(CardSeatTest, MoreThanThereAreSeatsForAreToldSo) {
  const std::vector<std::string> cards = Cards(1);
  std::vector<std::unique_ptr<CardSeat>> seats;
  for (int i = 0; i < 256; ++i) seats.push_back(Take(cards));
  const absl::Status status = CardSeat::Take(cards).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("name one, as in cuda:0"), std::string::npos) << status;
}

}  // namespace
}  // namespace tessera::worker
