// Requests to the swap file: data come back as written, errors reach the waiting thread, and the threads work after
// errors.
#include "strategies/offload/swap_file.hpp"

#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <cstring>
#include <random>

#include "runner/base/error.hpp"
#include "tests/offload/swap_folder.hpp"

using namespace runner;
using Catch::Matchers::Message;

namespace {

constexpr int64_t page = SwapFile::alignment;

void fill(AlignedBuffer& buffer, unsigned seed) {
  std::mt19937 random(seed);
  for (auto& byte : buffer.bytes()) byte = static_cast<std::byte>(random());
}

bool same(const AlignedBuffer& a, const AlignedBuffer& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.size())) == 0;
}

int64_t threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("requests of any number of pages are written and read back") {
  auto [parent, direct] = GENERATE(table<const char*, bool>({{"", true}, {"", false}, {"/dev/shm", true}}));
  SwapFolder folder(*parent ? parent : std::filesystem::temp_directory_path());
  SwapFile file({.folder = folder.path, .block_size = 3 * page, .queue_depth = 2, .thread_count = 2, .direct = direct},
                64 * page - 5);
  CHECK(file.bytes() == 64 * page);
  if (!direct) CHECK(!file.direct());
  AlignedBuffer zeros(64 * page), all(64 * page);
  std::memset(zeros.data(), 0, static_cast<size_t>(zeros.size()));
  fill(all, 0);
  file.wait(file.read(0, all.bytes()));
  CHECK(same(all, zeros));

  std::vector<AlignedBuffer> pieces;
  std::vector<SwapFile::Ticket> tickets;
  std::vector<int64_t> offsets;
  for (int64_t offset = 0, size = page; offset + size <= file.bytes(); offset += size, size += page) {
    pieces.emplace_back(size);
    offsets.push_back(offset);
    fill(pieces.back(), static_cast<unsigned>(size));
    tickets.push_back(file.write(offset, pieces.back().bytes()));
  }
  for (auto ticket : tickets) file.wait(ticket);
  for (size_t i = pieces.size(); i-- > 0;) {
    AlignedBuffer back(pieces[i].size());
    file.wait(file.read(offsets[i], back.bytes()));
    CHECK(same(back, pieces[i]));
  }
  auto written = offsets.back() + pieces.back().size();
  CHECK(file.bytes_written() == written);
  CHECK(file.bytes_read() == file.bytes() + written);
}

TEST_CASE("direct I/O is used if the file system supports it") {
  SwapFolder folder;
  auto probe = folder.path / "probe";
  int fd = ::open(probe.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
  ::close(fd);
  CHECK(SwapFile({.folder = folder.path}, page).direct() == (fd >= 0));
}

TEST_CASE("a request with a predecessor starts when the predecessor has ended") {
  SwapFolder folder;
  SwapFile file({.folder = folder.path, .block_size = page, .queue_depth = 8}, 16 * page);
  AlignedBuffer first(16 * page), second(16 * page), back(16 * page);
  for (unsigned round = 0; round < 50; ++round) {
    fill(first, 2 * round);
    fill(second, 2 * round + 1);
    auto one = file.write(0, first.bytes());
    auto two = file.write(0, second.bytes(), one);
    auto three = file.read(0, back.bytes(), two);
    file.wait(three);
    REQUIRE(same(back, second));
    file.wait(one);
    file.wait(two);
  }
}

TEST_CASE("the threads start with the first request: thread_count x queue_depth") {
  SwapFolder folder;
  auto before = threads_of_process();
  {
    SwapFile file({.folder = folder.path, .queue_depth = 3, .thread_count = 2}, page);
    CHECK(threads_of_process() == before);
    AlignedBuffer buffer(page);
    file.wait(file.read(0, buffer.bytes()));
    CHECK(threads_of_process() == before + 6);
  }
  CHECK(threads_of_process() == before);
}

TEST_CASE("a truncated file is an error of the requests, and the process continues") {
  bool direct = GENERATE(true, false);
  SwapFolder folder;
  SwapFile file({.folder = folder.path, .block_size = 2 * page, .label = "rank 5", .direct = direct}, 8 * page);
  AlignedBuffer buffer(2 * page), back(2 * page);
  fill(buffer, 1);
  file.wait(file.write(0, buffer.bytes()));
  auto name = "the swap file of rank 5 in " + folder.path.string();
  folder.truncate_file(5 * page);
  CHECK_THROWS_MATCHES(file.wait(file.read(4 * page, back.bytes())), Error,
                       Message("read 4096 of 8192 bytes at offset 16384 of " + name +
                               ": the file has 20480 bytes and should have 32768"));
  CHECK_THROWS_MATCHES(
      file.wait(file.read(6 * page, back.bytes())), Error,
      Message("read 0 of 8192 bytes at offset 24576 of " + name + ": the file has 20480 bytes and should have 32768"));
  CHECK_THROWS_MATCHES(file.wait(file.write(6 * page, back.bytes())), Error,
                       Message("did not write 8192 bytes at offset 24576 of " + name +
                               ": the file has 20480 bytes and should have 32768"));
  folder.truncate_file(4 * page + 100);
  CHECK_THROWS_MATCHES(file.wait(file.read(4 * page, back.bytes())), Error,
                       Message("read 100 of 8192 bytes at offset 16384 of " + name +
                               ": the file has 16484 bytes and should have 32768"));
  try {
    file.wait(file.read(6 * page, back.bytes()));
    FAIL("the read beyond the end of the file returned");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::run_failed);
  }
  file.wait(file.read(0, back.bytes()));
  CHECK(same(back, buffer));
  folder.truncate_file(8 * page);
  CHECK_THROWS_MATCHES(file.wait(file.write(6 * page, buffer.bytes())), Error,
                       Message("did not write 8192 bytes at offset 24576 of " + name +
                               ": the file has holes, of 32768 bytes 20480 are there"));
  folder.reserve_file(8 * page);
  file.wait(file.write(6 * page, buffer.bytes()));
  file.wait(file.read(6 * page, back.bytes()));
  CHECK(same(back, buffer));
}

TEST_CASE("a system error is reported by the request and its followers, and by no other request") {
  SwapFolder folder;
  // One thread, so requests end in their order.
  SwapFile file({.folder = folder.path, .block_size = page, .queue_depth = 1}, 64 * page);
  auto* memory = ::mmap(nullptr, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  REQUIRE(::mprotect(memory, page, PROT_NONE) == 0);
  std::span<std::byte> first_page_bad(static_cast<std::byte*>(memory), 64 * page);
  AlignedBuffer buffer(page), other(page);
  fill(buffer, 1);
  auto bad = file.write(0, first_page_bad);
  auto follower = file.read(2 * page, other.bytes(), bad);
  auto good = file.write(0, buffer.bytes());
  file.wait(good);
  auto late_follower = file.read(2 * page, other.bytes(), follower);
  auto text =
      "cannot write 4096 bytes at offset 0 of the swap file of rank 0 in " + folder.path.string() + ": Bad address";
  CHECK_THROWS_MATCHES(file.wait(late_follower), Error, Message(text));
  CHECK_THROWS_MATCHES(file.wait(follower), Error, Message(text));
  CHECK_THROWS_MATCHES(file.wait(bad), Error, Message(text));
  CHECK_THROWS_AS(file.wait(bad), std::logic_error);
  CHECK(file.bytes_written() == page);  // later pieces of the bad request were not started
  CHECK(file.bytes_read() == 0);

  file.read(0, first_page_bad);  // not waited for, so the error is dropped
  file.wait(file.read(0, other.bytes()));
  CHECK(same(other, buffer));
  CHECK(file.bytes_read() == page);
  ::munmap(memory, 64 * page);
}

TEST_CASE("the destructor waits for requests in flight and for their followers") {
  SwapFolder folder;
  AlignedBuffer buffer(4 << 20);
  fill(buffer, 1);
  auto pristine = AlignedBuffer(buffer.size());
  std::memcpy(pristine.data(), buffer.data(), static_cast<size_t>(buffer.size()));
  AlignedBuffer back(buffer.size());
  {
    SwapFile file({.folder = folder.path, .block_size = page}, buffer.size());
    file.read(0, back.bytes(), file.write(0, buffer.bytes()));
  }
  CHECK(same(back, pristine));
}

TEST_CASE("invalid options are refused") {
  SwapFolder folder;
  auto refused = [&](SwapOptions options, const std::string& text) {
    options.folder = folder.path;
    CHECK_THROWS_MATCHES(SwapFile(options, page), Error, Message(text));
  };
  refused({.block_size = 5000}, "block_size must be a multiple of 4096 bytes, not 5000");
  refused({.block_size = 0}, "block_size must be a multiple of 4096 bytes, not 0");
  refused({.queue_depth = 0}, "queue_depth must be at least 1, not 0");
  refused({.thread_count = -1}, "thread_count must be at least 1, not -1");
  refused({.queue_depth = 32, .thread_count = 9}, "thread_count x queue_depth must be at most 256, not 9 x 32");
}

TEST_CASE("requests that are not aligned or outside the file are internal errors") {
  SwapFolder folder;
  SwapFile file({.folder = folder.path}, 4 * page);
  AlignedBuffer buffer(2 * page);
  CHECK_THROWS_AS(file.read(512, buffer.bytes()), std::logic_error);
  CHECK_THROWS_AS(file.read(0, buffer.bytes().first(100)), std::logic_error);
  CHECK_THROWS_AS(file.read(0, buffer.bytes().subspan(64, page)), std::logic_error);
  CHECK_THROWS_AS(file.read(3 * page, buffer.bytes()), std::logic_error);
  CHECK_THROWS_AS(file.read(0, buffer.bytes().first(0)), std::logic_error);
  CHECK_THROWS_AS(file.read(0, buffer.bytes(), 17), std::logic_error);
}
