// The ranks of a run as a grid with named axes, as PyTorch's DeviceMesh. Torch-free.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace runner {

/// The axes of a mesh, each with what ranks with different coordinates on it divide.
enum class Axis : uint8_t {
  none,       ///< no axis; its group is one rank
  pipeline,   ///< the blocks of the model
  data,       ///< the sequences of the global batch; a plan splits this axis into `replicate` and `shard`
  replicate,  ///< the sequences; each rank has the same shards, of another copy of the parameters
  shard,      ///< the sequences, and the shards of one copy of the parameters
  context,    ///< the positions of the same sequences
  tensor,     ///< rows and columns of the same parameters
};
/// "replicate".
const char* name_of(Axis axis);

struct MeshAxis {
  Axis axis = Axis::none;
  int size = 1;
  bool operator==(const MeshAxis&) const = default;
};

/// The ranks first, first + stride, first + 2 x stride, ...
struct RankGroup {
  int first = 0, stride = 1, size = 1;
  std::vector<int> ranks() const;
  /// `local_size`: ranks of a node, which are consecutive.
  bool spans_nodes(int local_size) const { return first / local_size != (first + (size - 1) * stride) / local_size; }
  bool operator==(const RankGroup&) const = default;
};

/// The coordinate on the last axis varies fastest, so ranks that are next to each other on it have consecutive numbers, and
/// are on one node where possible.
class Mesh {
 public:
  /// A mesh of one rank.
  Mesh() = default;
  /// `axes`: outermost first. Throws Error(usage) if the sizes do not multiply to `ranks`, if a size is below 1, or if an axis
  /// is named twice. Axes of size 1 make no difference, and are left out.
  Mesh(int ranks, const std::vector<MeshAxis>& axes);
  /// The mesh with `parts` instead of `axis`, outermost first. Throws Error(usage) if they do not multiply to its size.
  Mesh split(Axis axis, const std::vector<MeshAxis>& parts) const;

  /// The mesh with one axis `outer` instead of `outer` and `inner`, which follows it.
  Mesh joined(Axis outer, Axis inner) const;

  const std::vector<MeshAxis>& axes() const { return axes_; }
  /// Number of ranks: the world size.
  int ranks() const;
  /// Ranks along an axis; 1 if the mesh does not have it.
  int size(Axis axis) const;
  /// Distance between ranks that are next to each other on an axis; 1 if the mesh does not have it.
  int stride(Axis axis) const;
  int coordinate(int rank, Axis axis) const;
  /// The ranks that differ from `rank` at most in their coordinate on the axis.
  RankGroup group(int rank, Axis axis) const;
  /// All groups along an axis, ordered by their first rank.
  std::vector<RankGroup> groups(Axis axis) const;
  /// Whether some group along the axis has ranks of several nodes. `local_size`: as RankGroup::spans_nodes().
  bool spans_nodes(Axis axis, int local_size) const;

  /// Number of ranks that read different data (the axes `data`, `replicate` and `shard`), and the index of a rank among them.
  /// Ranks that differ only in other coordinates have the same index.
  int data_ranks() const;
  int data_rank(int rank) const;

  bool operator==(const Mesh&) const = default;

 private:
  std::vector<MeshAxis> axes_;
};

/// All ranks read different data.
Mesh data_mesh(int ranks);
/// "replicate 2 x shard 4"; "one rank" without axes.
std::string to_text(const Mesh& mesh);

// How the ranks of a context axis, which divide the tokens of each row, compute attention. Torch-free.

/// How queries reach the keys of other ranks.
enum class ContextForm : uint8_t {
  gather,  ///< each rank gathers the keys and values of all tokens (Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.2)
  ring,  ///< keys and values travel from rank to rank, and partial results are merged (Liu et al. 2023, arXiv:2310.01889)
  ulysses,  ///< during attention each rank has all tokens, of some of the heads (Jacobs et al. 2023, arXiv:2309.14509)
};
/// "gather", "ring", "ulysses", in the order of ContextForm.
const std::vector<std::string>& context_form_names();
const std::string& name_of(ContextForm form);
/// The inverse of name_of(). Throws std::logic_error for another name.
ContextForm context_form(const std::string& name);

}  // namespace runner
