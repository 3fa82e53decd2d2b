// A library that keeps checkpoints in another folder (plugins.checkpoint_io), as an example. It needs a compiler and the installed headers:
//
//   c++ -std=c++20 -O2 -fPIC -shared -Iinclude -o libfolder_store.so folder_store.cpp
#include "runner/plugins/parts.hpp"

#include <stdexcept>

namespace {

namespace fs = std::filesystem;
using runner::parts::Options;

/// ROOT/RUN/NAME has the files of a checkpoint. A folder that is not complete has a hidden name.
class FolderStore final : public runner::parts::CheckpointIO {
 public:
  explicit FolderStore(const Options& options) : root_(options.text("root", "")) {
    if (root_.empty()) throw std::invalid_argument("the option `root` names the folder of the stored checkpoints");
  }

  void save(const std::string& run, const std::string& name, const fs::path& folder) override {
    const fs::path kept = root_ / run / name, partial = root_ / run / ("." + name);
    fs::create_directories(root_ / run);
    fs::remove_all(partial);
    fs::copy(folder, partial, fs::copy_options::recursive);
    if (fs::exists(kept)) hide(run, name);
    fs::rename(partial, kept);
  }

  void load(const std::string& run, const std::string& name, const fs::path& folder) override {
    fs::copy(root_ / run / name, folder, fs::copy_options::recursive);
  }

  void remove(const std::string& run, const std::string& name) override {
    if (fs::exists(root_ / run / name)) hide(run, name);
  }

  std::vector<std::string> names(const std::string& run) override {
    std::vector<std::string> found;
    if (!fs::exists(root_ / run)) return found;
    for (const auto& entry : fs::directory_iterator(root_ / run))
      if (const std::string name = entry.path().filename(); !name.starts_with(".")) found.push_back(name);
    return found;
  }

 private:
  /// Removes a checkpoint. After a kill in between, it is no longer listed.
  void hide(const std::string& run, const std::string& name) {
    const fs::path hidden = root_ / run / (".removed-" + name);
    fs::remove_all(hidden);
    fs::rename(root_ / run / name, hidden);
    fs::remove_all(hidden);
  }

  fs::path root_;
};

}  // namespace

RUNNER_PARTS(.checkpoint_io = [](const Options& options) -> std::unique_ptr<runner::parts::CheckpointIO> {
  return std::make_unique<FolderStore>(options);
})
