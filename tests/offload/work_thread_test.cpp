// A work thread runs pieces in order in the background, and its owner waits for the pieces it needs. Also errors and
// the end.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

#include "runner/base/error.hpp"
#include "strategies/offload/work_thread.hpp"

using namespace runner;

TEST_CASE("waiting for a piece does not wait for later pieces", "[work thread]") {
  std::promise<void> go;
  std::vector<int> ran;  // the thread writes it; it is read after waits, so TSan detects a race
  WorkThread thread("a test", [&] { ran.push_back(-1); });
  thread.wait(5);  // there is no list yet
  thread.wait_all();
  thread.start({[&] { ran.push_back(0); }, [&] { ran.push_back(1); },
                [&, gate = go.get_future().share()] {
                  gate.wait();
                  ran.push_back(2);
                }});
  thread.wait(1);
  thread.wait(0);
  CHECK(ran == std::vector<int>{-1, 0, 1});  // the third piece waits for go
  go.set_value();
  thread.wait(2);
  CHECK(ran == std::vector<int>{-1, 0, 1, 2});
  thread.start({[&] { ran.push_back(3); }});
  thread.wait_all();
  CHECK(ran.back() == 3);
  CHECK_THROWS_AS(thread.wait(1), std::logic_error);
}

TEST_CASE("a new list waits for the previous one, and a piece is destroyed before it counts as done", "[work thread]") {
  WorkThread thread("a test");
  for (int round = 0; round < 200; ++round) {
    auto held = std::make_shared<int>(0);
    int sum = 0;
    std::vector<WorkThread::Piece> pieces;
    for (int i = 0; i < 5; ++i) pieces.push_back([held, &sum, i] { sum += i; });
    thread.start(std::move(pieces));
    thread.wait(0);
    CHECK(held.use_count() <= 5);
    thread.start({[&] { sum *= 2; }});
    thread.wait_all();
    CHECK(sum == 20);
    CHECK(held.use_count() == 1);
  }
}

TEST_CASE("an error of a piece is thrown by waits for it and for later pieces, with its type, and those are dropped",
          "[work thread]") {
  bool later = false;
  auto held = std::make_shared<int>(0);
  WorkThread thread("a test");
  thread.start({[] {}, [] { throw run_error("the disk of rank {} is gone", 3); }, [&later, held] { later = true; }});
  for (int again = 0; again < 2; ++again) {
    CHECK_THROWS_MATCHES(thread.wait(2), Error, Catch::Matchers::Message("the disk of rank 3 is gone"));
    CHECK_THROWS_MATCHES(thread.wait_all(), Error, Catch::Matchers::Message("the disk of rank 3 is gone"));
    thread.wait(0);
    CHECK_THROWS_AS(thread.start({[&later] { later = true; }}), Error);
  }
  CHECK(!later);
  CHECK(held.use_count() == 1);
}

TEST_CASE("the destructor waits for the running piece and drops the others", "[work thread]") {
  std::promise<void> begun, go;
  bool ended = false;
  auto held = std::make_shared<int>(0);
  std::thread releases;
  {
    WorkThread thread("a test");
    thread.start({[&, gate = go.get_future().share()] {
                    begun.set_value();
                    gate.wait();
                    ended = true;
                  },
                  [held] {}});
    begun.get_future().wait();
    releases = std::thread([&] { go.set_value(); });
  }
  CHECK(ended);
  CHECK(held.use_count() == 1);
  releases.join();
}

TEST_CASE("the thread blocks signals", "[work thread]") {
  sigset_t blocked;
  sigemptyset(&blocked);
  WorkThread thread("a test");
  thread.start({[&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked); }});
  thread.wait_all();
  CHECK(sigismember(&blocked, SIGTERM) == 1);
  CHECK(sigismember(&blocked, SIGINT) == 1);
  sigset_t own;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &own);
  CHECK(sigismember(&own, SIGTERM) == 0);
}
