// Device strings in Lightning's syntax.
#include "runner/config/device_request.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace runner;
using Kind = DeviceRequest::Kind;

TEST_CASE("device strings have Lightning's meaning and are printed back") {
  struct Row {
    nlohmann::json value;
    Kind kind;
    int count;
    std::vector<int> indices;
  };
  for (const auto& row : std::vector<Row>{{4, Kind::count, 4, {}},
                                          {"4", Kind::count, 4, {}},
                                          {-1, Kind::count, -1, {}},
                                          {"-1", Kind::count, -1, {}},
                                          {"1,3", Kind::indices, 0, {1, 3}},
                                          {"0, 1", Kind::indices, 0, {0, 1}},
                                          {"1,", Kind::indices, 0, {1}},
                                          {{1, 3}, Kind::indices, 0, {1, 3}},
                                          {"auto", Kind::automatic, 0, {}},
                                          {"free:2", Kind::free_count, 2, {}}}) {
    std::string problem;
    auto request = parse_devices(row.value, problem);
    INFO(row.value.dump() << " " << problem);
    REQUIRE(request);
    CHECK(request->kind == row.kind);
    CHECK(request->count == row.count);
    CHECK(request->indices == row.indices);
    auto again = parse_devices(nlohmann::json::parse(write_devices(*request)), problem);
    REQUIRE(again);
    CHECK(again->indices == request->indices);
    CHECK(again->count == request->count);
  }
}

TEST_CASE("what is not a device string is refused with the reason") {
  for (const auto& [value, why] : std::vector<std::pair<nlohmann::json, std::string>>{
           {0, "0 devices cannot train anything"},
           {-2, "a negative number other than -1 (all) is not allowed"},
           {"two", "\"two\" is not a device string"},
           {"free:0", "\"free:N\" needs a positive number of devices"},
           {{1, 1}, "device index 1 is named twice"},
           {4294967297, "there are no 4294967297 devices"},
           {{0, 4294967297}, "4294967297 is not a device index"},
           {nlohmann::json::array(), "the list of device indices is empty"},
           {true, "true is not a device string"}}) {
    std::string problem;
    CHECK_FALSE(parse_devices(value, problem));
    CHECK(problem == why);
  }
}
