// The configuration of another tool -> values of a recipe, by the table schemas/names/TOOL.toml.
#pragma once
#include <cmath>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runner/config/config.hpp"
#include "runner/config/importer.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/located_json.hpp"
#include "runner/config/tool_names.hpp"

namespace runner {

/// Whether a whole number of this size is exact.
inline bool is_countable(double number) { return std::abs(number) < 9e15; }

/// The translation of one file.
class ToolTranslator {
 public:
  explicit ToolTranslator(const ToolNames& tool) : tool_(tool) {}
  Imported all(const LocatedJson& configuration, const RecipeCheck& of_strategy);

 private:
  /// A table with a row, which is reported if one of its keys has none.
  struct Block {
    const ToolName* row;
    const LocatedJson* node;
    std::string path;
  };

  // ---- notes and values
  void note(const LocatedJson& node, const std::string& path, const std::string& text);
  void note_at(const Origin& place, const std::string& path, const std::string& text);
  /// Notes that a value is not translated. In the reason, the name in backquotes stands for the value.
  void refuse(const ForeignName& name, const LocatedJson& node, const std::string& path);
  void set(const std::string& key, const nlohmann::json& value, const LocatedJson& node, const std::string& path);
  std::optional<ImportedValue> value_of(const std::string& key) const;
  /// The value at a path of the file; null: it has none.
  nlohmann::json given(const std::string& path) const;
  /// Whether another name of the file switches this one off, which is noted if it would mean something.
  bool is_switched_off(const ToolName* row, const std::string& path, const LocatedJson& node);

  // ---- name by name
  void visit(const std::string& path, const LocatedJson& node, const Block* block);
  void apply(const ToolName& row, const std::string& path, const LocatedJson& node);
  /// A name without a row: a name of Lightning, a key of recipes, or an unknown one.
  void without_row(const std::string& path, const LocatedJson& node, const Block* block);
  static const Key* key_named(const std::string& name);
  void item(const std::string& key, NameConversion as, const LocatedJson& node, const std::string& path);
  /// axolotl's list of { path, type, ds_type }. Only files can be read.
  bool read_datasets(const std::string& key, const LocatedJson& node, const std::string& path);
  /// Notes what read_datasets() does not read of an entry.
  void list_untranslated(const nlohmann::json& entry, const std::string& file, const LocatedJson& node,
                         const std::string& path);
  /// Lightning's callbacks and loggers: classes, or tables of class_path and init_args. A class whose arguments have rows is a table of
  /// them.
  void read_callbacks(const ForeignName& callbacks, const LocatedJson& node, const std::string& path);
  /// Lightning's strategy as a class: recipes take its name, and its arguments in [strategy].
  void read_strategy(const LocatedJson& node, const std::string& path);
  /// Moves the arguments of EarlyStopping that recipes have to train.early_stopping.
  void stop_early(nlohmann::json& arguments, const LocatedJson& node, const std::string& path);

  // ---- values that depend on others
  /// Without a metric, ModelCheckpoint keeps the newest checkpoints.
  void keep_newest();
  /// The value of a key so far; without one, that of recipes.
  nlohmann::json value_now(const std::string& key) const;
  /// The value of a key so far, if it is a number that can be counted; otherwise null.
  nlohmann::json number_now(const std::string& key) const;
  /// The tool's default for a key; nullptr: that of recipes, as far as is known.
  const ToolDefault* default_for(const std::string& key) const;
  /// Writes the tool's defaults for the keys that begin so. Rows of the table follow the keys that they depend on.
  void add_defaults(const std::string& begin);
  /// Data parallelism, of which the file has the sizes of both axes. -1: the ranks that the other axes leave over.
  void set_data_axes();
  /// Lightning counts micro-batches between validations, and recipes count steps.
  void count_steps_of_validations();
  /// Shares of the run as steps. Without the number of steps, a note has what to multiply it by.
  void count_shares();
  /// Values that depend on others.
  void complete();
  /// Values that a recipe would refuse are listed instead.
  void check(const RecipeCheck& of_strategy);
  void find_missing();

  /// The size of an axis of data parallelism.
  struct Degree {
    int64_t ranks = 1;
    const LocatedJson* node = nullptr;  ///< the file has none
    std::string path = "";
  };

  const ToolNames& tool_;
  const LocatedJson* configuration_ = nullptr;
  std::vector<std::pair<const ToolSwitch*, std::string>> off_;  ///< and the note for the names that it turns off
  Imported meaning_;
  Degree shard_, replicate_;
  std::set<std::string> answered_;                  ///< keys that the file decides, with or without a value here
  std::vector<std::pair<int, std::string>> notes_;  ///< with their lines
  std::set<std::string> reported_;                  ///< blocks
  std::set<std::string> unset_;                     ///< keys that must not be set
  std::vector<std::tuple<const ToolName*, const LocatedJson*, std::string>> shares_;
  std::list<LocatedJson> arguments_;  ///< of callbacks
};

}  // namespace runner
