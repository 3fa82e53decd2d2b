// Pictures of pipeline schedules, and their JSON.
#include "strategies/pipeline/picture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sstream>

#include "strategies/pipeline/transfers.hpp"
#include "tests/pipeline/shapes.hpp"

using namespace runner;

namespace {

std::string picture(const PipelineShape& shape, int columns, const PipelineTiming& timing = {}) {
  return draw(shape, simulate(shape, with_transfers(shape, training_order(shape)), timing), columns);
}

}  // namespace

TEST_CASE("1f1b: a forward is as wide as its name, and a backward twice as wide") {
  CHECK(picture({.ranks = 4, .micro_batches = 6}, 80) ==
        "rank 0 F0F1F2F3............B0--F4B1--F5B2--..B3--..B4--..B5--\n"
        "rank 1 ..F0F1F2........B0--F3B1--F4B2--F5B3--..B4--..B5--....\n"
        "rank 2 ....F0F1....B0--F2B1--F3B2--F4B3--F5B4--..B5--........\n"
        "rank 3 ......F0B0--F1B1--F2B2--F3B3--F4B4--F5B5--............\n"
        "F forward; B backward; '.' idle\n");
}

TEST_CASE("zb_h1: the parts of backwards that compute weights fill gaps") {
  CHECK(picture({.schedule = PipelineSchedule::zb_h1, .ranks = 4, .micro_batches = 6}, 80) ==
        "rank 0 F0F1F2F3......I0W0F4I1W1F5I2W2I3W3I4W4I5W5\n"
        "rank 1 ..F0F1F2....I0F3I1W0F4I2W1F5I3W2I4W3I5W4W5\n"
        "rank 2 ....F0F1..I0F2I1F3I2W0F4I3W1F5I4W2I5W3W4W5\n"
        "rank 3 ......F0I0F1I1F2I2F3I3W0F4I4W1F5I5W2W3W4W5\n"
        "F forward; I backward, input part; W weight part; '.' idle\n");
}

TEST_CASE("names are shortened where there is little room") {
  const PipelineShape shape{
      .schedule = PipelineSchedule::interleaved_1f1b, .ranks = 2, .virtual_stages = 2, .micro_batches = 2};
  const std::string legend = "F forward; B backward; a, b, .. virtual stages of a rank; '.' idle\n";
  CHECK(picture(shape, 80) ==
        "rank 0 F0aF1aF0bF1b......B0b---...B1b---B0a---B1a---\n"
        "rank 1 ...F0aF1aF0bB0b---F1bB1b---B0a---B1a---......\n" +
            legend);
  CHECK(picture(shape, 40) ==
        "rank 0 F0F1F0F1....B0b-..B1b-B0a-B1a-\n"
        "rank 1 ..F0F1F0B0b-F1B1b-B0a-B1a-....\n" +
            legend);
  CHECK(picture(shape, 22) ==
        "rank 0 FFFF..B0.B1B0B1\n"
        "rank 1 .FFFB0FB1B0B1..\n" +
            legend);
}

TEST_CASE("no line of a rank is wider than the terminal") {
  for (const auto& shape : small_shapes())
    for (const int columns : {20, 33, 80, 200}) {
      PipelineTiming timing;
      for (int stage = 0; stage < shape.stages(); ++stage) timing.stages.push_back({.forward = 0.1 + stage});
      std::istringstream lines(picture(shape, columns, timing));
      std::string line;
      for (int rank = 0; rank < shape.ranks; ++rank) {
        REQUIRE(std::getline(lines, line));
        INFO(line);
        CHECK(line.starts_with(fmt::format("rank {} ", rank)));
        CHECK(std::ssize(line) <= columns);
        CHECK(line.find(shape.schedule == PipelineSchedule::zb_h1 ? 'I' : 'B') != std::string::npos);
      }
    }
}

TEST_CASE("JSON lists the computations of each rank") {
  const PipelineShape shape{.ranks = 2, .micro_batches = 1};
  const auto played = simulate(shape, with_transfers(shape, training_order(shape)), {.latency = 0.5});
  CHECK(to_json(played).dump() == R"([{"rank":0,"kind":"forward","stage":0,"micro_batch":0,"start":0.0,"end":1.0},)"
                                  R"({"rank":0,"kind":"backward","stage":0,"micro_batch":0,"start":5.0,"end":7.0},)"
                                  R"({"rank":1,"kind":"forward","stage":1,"micro_batch":0,"start":1.5,"end":2.5},)"
                                  R"({"rank":1,"kind":"backward","stage":1,"micro_batch":0,"start":2.5,"end":4.5}])");
}
