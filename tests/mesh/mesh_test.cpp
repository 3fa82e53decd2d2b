// Meshes: sizes, coordinates, groups and texts, as tables.
#include "strategies/mesh/mesh.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <set>

#include "runner/base/error.hpp"

using namespace runner;

namespace {

using Axes = std::vector<MeshAxis>;

constexpr Axis all_axes[] = {Axis::none,  Axis::pipeline, Axis::data,  Axis::replicate,
                             Axis::shard, Axis::context,  Axis::tensor};

const Axes hybrid{{.axis = Axis::replicate, .size = 2}, {.axis = Axis::shard, .size = 4}};
const Axes every_axis{{.axis = Axis::pipeline, .size = 2},
                      {.axis = Axis::replicate, .size = 3},
                      {.axis = Axis::shard, .size = 4},
                      {.axis = Axis::context, .size = 2},
                      {.axis = Axis::tensor, .size = 2}};

auto says(const std::string& text) { return Catch::Matchers::Message(text); }

}  // namespace

TEST_CASE("two axes that follow each other can be joined") {
  const Mesh mesh(24, {{.axis = Axis::pipeline, .size = 2},
                       {.axis = Axis::data, .size = 2},
                       {.axis = Axis::context, .size = 3},
                       {.axis = Axis::tensor, .size = 2}});
  const Mesh joined = mesh.joined(Axis::data, Axis::context);
  CHECK(joined == Mesh(24, {{.axis = Axis::pipeline, .size = 2},
                            {.axis = Axis::data, .size = 6},
                            {.axis = Axis::tensor, .size = 2}}));
  const Mesh without(6, {{.axis = Axis::context, .size = 3}, {.axis = Axis::tensor, .size = 2}});
  CHECK(without.joined(Axis::data, Axis::context) ==
        Mesh(6, {{.axis = Axis::data, .size = 3}, {.axis = Axis::tensor, .size = 2}}));
  CHECK(joined.joined(Axis::data, Axis::context) == joined);
}

TEST_CASE("sizes and strides: an axis that a mesh does not have has one rank") {
  struct Row {
    Axis axis;
    int size, stride;
  };
  const Mesh mesh(96, every_axis);
  CHECK(mesh.ranks() == 96);
  for (const auto& row :
       {Row{.axis = Axis::pipeline, .size = 2, .stride = 48}, Row{.axis = Axis::replicate, .size = 3, .stride = 16},
        Row{.axis = Axis::shard, .size = 4, .stride = 4}, Row{.axis = Axis::context, .size = 2, .stride = 2},
        Row{.axis = Axis::tensor, .size = 2, .stride = 1}, Row{.axis = Axis::data, .size = 1, .stride = 1},
        Row{.axis = Axis::none, .size = 1, .stride = 1}}) {
    INFO(name_of(row.axis));
    CHECK(mesh.size(row.axis) == row.size);
    CHECK(mesh.stride(row.axis) == row.stride);
  }
}

TEST_CASE("the coordinate on the last axis varies fastest") {
  struct Row {
    int rank, replicate, shard;
    RankGroup copies, shards;
  };
  const Mesh mesh(8, hybrid);
  for (const auto& row : {Row{.rank = 0,
                         .replicate = 0,
                         .shard = 0,
                         .copies = {.first = 0, .stride = 4, .size = 2},
                         .shards = {.first = 0, .stride = 1, .size = 4}},
                          Row{.rank = 3,
                          .replicate = 0,
                          .shard = 3,
                          .copies = {.first = 3, .stride = 4, .size = 2},
                          .shards = {.first = 0, .stride = 1, .size = 4}},
                          Row{.rank = 6,
                          .replicate = 1,
                          .shard = 2,
                          .copies = {.first = 2, .stride = 4, .size = 2},
                          .shards = {.first = 4, .stride = 1, .size = 4}}}) {
    INFO("rank " << row.rank);
    CHECK(mesh.coordinate(row.rank, Axis::replicate) == row.replicate);
    CHECK(mesh.coordinate(row.rank, Axis::shard) == row.shard);
    CHECK(mesh.group(row.rank, Axis::replicate) == row.copies);
    CHECK(mesh.group(row.rank, Axis::shard) == row.shards);
    CHECK(mesh.group(row.rank, Axis::tensor) == RankGroup{.first = row.rank});
  }
}

TEST_CASE("the groups along an axis are all ranks, and each rank finds itself in its group at its coordinate") {
  for (const auto& mesh : {Mesh(), data_mesh(5), Mesh(8, hybrid), Mesh(96, every_axis)})
    for (Axis axis : all_axes) {
      INFO(to_text(mesh) << ", " << name_of(axis));
      std::set<int> found;
      for (const auto& group : mesh.groups(axis))
        for (int rank : group.ranks()) {
          CHECK(found.insert(rank).second);
          CHECK(mesh.group(rank, axis) == group);
          CHECK(group.ranks()[static_cast<size_t>(mesh.coordinate(rank, axis))] == rank);
        }
      CHECK(std::ssize(found) == mesh.ranks());
      CHECK(std::ssize(mesh.groups(axis)) == mesh.ranks() / mesh.size(axis));
    }
}

TEST_CASE("a group spans nodes if its ranks are on several nodes") {
  struct Row {
    Axes axes;
    int ranks, local_size;
    bool replicate, shard;
  };
  const Axes thirds{{.axis = Axis::replicate, .size = 4}, {.axis = Axis::shard, .size = 3}};
  for (const auto& row : {Row{.axes = hybrid, .ranks = 8, .local_size = 8, .replicate = false, .shard = false},
                          Row{.axes = hybrid, .ranks = 8, .local_size = 4, .replicate = true, .shard = false},
                          Row{.axes = hybrid, .ranks = 8, .local_size = 2, .replicate = true, .shard = true},
                          // Ranks 0 to 2 are on the first node, but 3 to 5 are not on one.
                          Row{.axes = thirds, .ranks = 12, .local_size = 4, .replicate = true, .shard = true},
                          Row{.axes = {{.axis = Axis::replicate, .size = 4}},
                          .ranks = 4,
                          .local_size = 1,
                          .replicate = true,
                          .shard = false}}) {
    const Mesh mesh(row.ranks, row.axes);
    INFO(to_text(mesh) << ", nodes of " << row.local_size);
    CHECK(mesh.spans_nodes(Axis::replicate, row.local_size) == row.replicate);
    CHECK(mesh.spans_nodes(Axis::shard, row.local_size) == row.shard);
    CHECK(!mesh.spans_nodes(Axis::tensor, row.local_size));
  }
}

TEST_CASE("ranks that differ only in pipeline, context and tensor read the same data") {
  const Mesh mesh(96, every_axis);
  CHECK(mesh.data_ranks() == 12);
  for (int rank = 0; rank < 96; ++rank) {
    INFO("rank " << rank);
    CHECK(mesh.data_rank(rank) == mesh.coordinate(rank, Axis::replicate) * 4 + mesh.coordinate(rank, Axis::shard));
  }
  const Mesh beside_tensor(8, {{.axis = Axis::data, .size = 4}, {.axis = Axis::tensor, .size = 2}});
  std::vector<int> indices;
  for (int rank = 0; rank < 8; ++rank) indices.push_back(beside_tensor.data_rank(rank));
  CHECK(indices == std::vector{0, 0, 1, 1, 2, 2, 3, 3});
  for (const auto& all : {data_mesh(6), Mesh(6, {{.axis = Axis::replicate, .size = 6}})}) {
    CHECK(all.data_ranks() == 6);
    CHECK(all.data_rank(4) == 4);
  }
  CHECK(Mesh().data_ranks() == 1);
}

TEST_CASE("an axis is split in place, and data ranks keep their order") {
  const Mesh mesh(16, {{.axis = Axis::data, .size = 8}, {.axis = Axis::tensor, .size = 2}});
  const Mesh split = mesh.split(Axis::data, hybrid);
  CHECK(to_text(split) == "replicate 2 x shard 4 x tensor 2");
  CHECK(split.stride(Axis::replicate) == 8);
  for (int rank = 0; rank < 16; ++rank) CHECK(split.data_rank(rank) == mesh.data_rank(rank));
  CHECK(to_text(mesh.split(Axis::data, {{.axis = Axis::shard, .size = 8}})) == "shard 8 x tensor 2");
  CHECK(mesh.split(Axis::replicate, {{.axis = Axis::shard, .size = 1}}) == mesh);
  CHECK_THROWS_MATCHES(mesh.split(Axis::data, {{.axis = Axis::replicate, .size = 3}, {.axis = Axis::shard, .size = 2}}),
                       Error, says("the mesh replicate 3 x shard 2 is for 6 ranks, not for 8"));
  CHECK_THROWS_AS(mesh.split(Axis::data, {{.axis = Axis::tensor, .size = 8}}), Error);
}

TEST_CASE("texts leave out axes of one rank") {
  CHECK(to_text(Mesh(8, hybrid)) == "replicate 2 x shard 4");
  CHECK(to_text(Mesh(4, {{.axis = Axis::replicate, .size = 1}, {.axis = Axis::shard, .size = 4}})) == "shard 4");
  CHECK(to_text(data_mesh(3)) == "data 3");
  CHECK(to_text(data_mesh(1)) == "one rank");
  CHECK(to_text(Mesh()) == "one rank");
  CHECK(data_mesh(1) == Mesh());
}

TEST_CASE("meshes that cannot be are refused") {
  struct Row {
    int ranks;
    Axes axes;
    std::string message;
  };
  for (const auto& row :
       {Row{.ranks = 6, .axes = hybrid, .message = "the mesh replicate 2 x shard 4 is for 8 ranks, not for 6"},
        Row{.ranks = 0, .axes = {{.axis = Axis::data, .size = 0}}, .message = "a mesh cannot have data 0"},
        Row{.ranks = 1, .axes = {{.axis = Axis::none, .size = 1}}, .message = "a mesh cannot have none 1"},
        Row{.ranks = 4,
        .axes = {{.axis = Axis::shard, .size = 2}, {.axis = Axis::shard, .size = 2}},
        .message = "the mesh shard 2 x shard 2 has the axis shard twice"},
        Row{.ranks = 1,
        .axes = {{.axis = Axis::replicate, .size = 1 << 30}, {.axis = Axis::shard, .size = 1 << 30}},
        .message = "the mesh replicate 1073741824 x shard 1073741824 is for 2147483648 ranks, not for 1"}}) {
    INFO(row.message);
    CHECK_THROWS_MATCHES(Mesh(row.ranks, row.axes), Error, says(row.message));
  }
}
