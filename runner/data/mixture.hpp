// Several data sets in one epoch, in given shares.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/data/data.hpp"

namespace runner {

/// Interleaves `counts[i]` items of each source evenly: after any number p of items, source i has been taken p * counts[i] / total
/// times, rounded, with an error of less than 2. Any position is found in O(log sources).
class Interleaving {
 public:
  explicit Interleaving(const std::vector<int64_t>& counts);
  int64_t size() const { return nodes_.back().count; }
  struct Item {
    size_t source;
    int64_t index;  ///< how many items of the source come before
  };
  Item operator[](int64_t position) const;

 private:
  /// A tree: the last node is the root, and the two parts of a node share its positions.
  struct Node {
    int64_t count;
    int64_t first = -1, second = -1;  ///< nodes; -1: a source
    size_t source = 0;
  };
  std::vector<Node> nodes_;
};

struct MixtureSource {
  std::string name = {};
  std::unique_ptr<Dataset> data = {};
  std::optional<double> weight = {};  ///< all sources have one, or none
  int64_t epochs = 1;                 ///< without weights: how often an epoch takes each sample
};

enum class MixtureEnd { first_exhausted, all_exhausted };

/// The samples of each source in an epoch. With weights, or with a temperature other than 1 (shares of size^(1/temperature)), the
/// epoch ends when the first, or when each source has been taken completely, `epochs` times.
std::vector<int64_t> mixture_counts(const std::vector<int64_t>& sizes, const std::vector<MixtureSource>& sources,
                                    double temperature, MixtureEnd end);

/// Takes `counts[i]` samples of source i in each epoch, interleaved. Each source is shuffled on its own, again each time that it has
/// been taken completely. An epoch continues where the one before has stopped, so no sample is taken twice before all others of
/// its source. All sources have the same fields and have learned the same.
std::unique_ptr<Dataset> mixture_dataset(std::vector<MixtureSource> sources, std::vector<int64_t> counts);

}  // namespace runner
