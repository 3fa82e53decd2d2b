// A recipe as plain values, with the origin of each value (see Origin).
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/plugin_paths.hpp"
#include "strategies/pipeline/stages.hpp"

namespace runner {

/// Where a value came from: a location in a file, `--set`, a default, or a decision (`auto`).
struct Origin {
  enum class Kind { file, set, default_value, decided };
  Kind kind = Kind::default_value;
  std::string file = "";  ///< path as the user gave it; for `set` the text of the argument
  int line = 0;           ///< from 1; 0: none
  int column = 0;
  std::string note = "";     ///< for `decided`: the reason
  std::string excerpt = "";  ///< the source line, for messages
  int span = 1;              ///< characters the caret underlines
};

/// The devices that a recipe requests on each node: automatic, a count, exact indices, or a count of free devices.
struct DeviceRequest {
  enum class Kind { automatic, count, indices, free_count };
  Kind kind = Kind::automatic;
  int count = 0;             ///< for count and free_count ("free:2"); -1 means all
  std::vector<int> indices;  ///< for indices
};

/// Numbers of ranks along the axes of a mesh (strategies/mesh/mesh.hpp). Axes that are not given have one rank, but if none of data,
/// replicate and shard is given, the data axis is what is left over.
struct MeshSizes {
  std::optional<int64_t> pipeline = {}, data = {}, replicate = {}, shard = {}, context = {}, tensor = {};

  /// Whether they determine the number of ranks.
  bool complete() const { return data || replicate || shard; }
  /// Ranks that read different data, if complete().
  int64_t data_ranks() const { return data.value_or(replicate.value_or(1) * shard.value_or(1)); }
  /// Ranks that read the same data.
  int64_t ranks_of_data() const { return pipeline.value_or(1) * context.value_or(1) * tensor.value_or(1); }
  bool operator==(const MeshSizes&) const = default;
};

/// `accumulate_grad_batches`: first epoch -> factor from that epoch on. A plain integer n is {0: n}.
using AccumulationSchedule = std::map<int64_t, int64_t>;

/// The strategies for selection.prefer, from schemas/selection_rules.toml: they do the same, and the first is the default.
const std::vector<std::string>& preferences();

/// A recipe. Sections are structs, and field names are TOML keys. An optional field may be unset; its value then
/// follows from others. The initialisers are the defaults. The files *_keys.cpp have type, choices, bounds and
/// help of each key.
struct Recipe {
  /// The value of a number that is "auto": it is chosen by prediction.
  static constexpr int64_t automatic = 0;

  struct Run {
    std::string name;  ///< default: the file's stem; the ledger then gives the run a memorable name
    int64_t seed = 1234;
    bool deterministic = false;
    bool benchmark = false;    ///< cuDNN autotuning
    int64_t fast_dev_run = 0;  ///< n > 0: n optimizer steps and n batches of validation; nothing is kept
    std::vector<std::string> tags;
    std::string notes, group;
    std::string profiler = "off";
    std::optional<std::vector<int64_t>> profile_steps;  ///< default: the third and the fourth of each attempt
  } run;

  struct Model {
    std::string name;
    int64_t n_layers = 0, dim = 0, n_heads = 0;
    std::optional<int64_t> n_kv_heads;  ///< decoders: grouped-query attention; default n_heads
    std::optional<int64_t> vocab_size;  ///< default: the tokenizer's
    int64_t max_seq_len = 0;
    std::optional<int64_t> hidden_dim;         ///< feed-forward width; default 4*dim (gpt, not gated), or Llama's rule
    int64_t multiple_of = 256;                 ///< Llama's rule rounds hidden_dim up to this
    std::optional<double> ffn_dim_multiplier;  ///< Llama's rule
    double norm_eps = 1e-5;
    std::optional<std::string> activation;  ///< default: the family's (activation_of())
    bool bias = true;                       ///< gpt: biases in linears and LayerNorm
    bool tie_embeddings = true;             ///< head shares the embedding's weight

    int64_t type_vocab_size = 2;  ///< encoders: rows of the table of types
    int64_t position_offset = 0;  ///< encoders: unused rows at the beginning of the table of positions

    // The options of decoders. The initialisers are llama's; model_families.cpp has those of the other families.
    std::optional<int64_t> head_dim;      ///< width of a head; default dim / n_heads
    std::string norm = "rms";             ///< rms, or layer (with biases)
    std::string norm_place = "pre";       ///< of attention and feed-forward: pre, post or both
    bool norm_offset = false;             ///< weights of norms are stored minus 1
    std::string qk_norm = "none";         ///< of queries and keys: none, head (over a head) or full (over all heads)
    bool parallel_residual = false;       ///< attention and feed-forward both read the layer's input
    std::string attention_bias = "none";  ///< none, qkv or all
    bool mlp_bias = false;
    bool gated_mlp = true;
    std::optional<double> attention_scale;      ///< factor of scores; default 1 / sqrt(head_dim)
    double attention_softcap = 0;               ///< scores s become cap * tanh(s / cap); 0: no cap
    double logits_softcap = 0;                  ///< cap of logits, as for scores; 0: no cap
    int64_t sliding_window = 0;                 ///< keys that a query of a windowed layer sees; 0: all before it
    std::vector<std::string> layer_types = {};  ///< sliding_attention or full_attention, repeated over the layers
    double rope_theta = 10000.0;
    std::optional<double> rope_local_theta;  ///< of windowed layers, without rope_scaling; default: as other layers
    double partial_rotary_factor = 1.0;      ///< share of a head's elements that is rotated
    int64_t no_rope_every = 0;               ///< each n-th layer has no rotary positions; 0: none
    struct RopeScaling {                     ///< unset without the table; which fields apply depends on rope_type
      double factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
      int64_t original_max_position_embeddings = 8192;
      std::string rope_type = "llama3";                         ///< linear, llama3, yarn or longrope
      double beta_fast = 32.0, beta_slow = 1.0;                 ///< yarn
      std::optional<double> attention_factor = {};              ///< yarn, longrope: of cos and sin
      std::vector<double> short_factor = {}, long_factor = {};  ///< longrope
    };
    std::optional<RopeScaling> rope_scaling;
    std::optional<double> embedding_multiplier;  ///< default 1; sqrt(dim) for the Gemma families
    double residual_multiplier = 1.0;            ///< of what attention and feed-forward add to the stream
    double logits_scaling = 1.0;                 ///< logits are divided by this

    // The options of plug-ins.
    std::optional<std::string> plugin;                  ///< the library
    nlohmann::json options = nlohmann::json::object();  ///< the plug-in's own options

    double dropout = 0.0;
    double init_std = 0.02;
    std::vector<std::string> frozen = {};  ///< globs over names of parameters that are not trained
    std::optional<std::string> init_from;  ///< a Hugging Face folder of safetensors, or a GGUF file
    int64_t loss_chunk_tokens = 1024;      ///< tokens whose logits are in memory at once; 0: all

    // The options of models that are not language models.
    std::vector<int64_t> hidden_sizes = {};  ///< mlp: widths of the hidden layers; resnet: channels of the stages
    std::optional<int64_t> num_features;     ///< mlp: inputs of a row; default: those of the data
    std::optional<int64_t> num_labels;       ///< outputs: classes, labels or numbers; default: those of the data
    std::vector<std::string> labels = {};    ///< their names, of models of texts; default: those of the data
    std::vector<std::string> label_order =
        {};                                 ///< no key: the order in a resumed run of labels that the data determine
    int64_t image_size = 224;               ///< vit, resnet: width and height of images
    int64_t patch_size = 16;                ///< vit
    std::vector<int64_t> depths = {};       ///< resnet: layers of each stage
    int64_t embedding_size = 64;            ///< resnet: channels of the stem
    std::string layer_type = "bottleneck";  ///< resnet: bottleneck, or basic
    bool downsample_in_first_stage = false, downsample_in_bottleneck = false;  ///< resnet
    bool sync_batchnorm = false;  ///< BatchNorm uses the rows of all ranks of a micro-batch
  } model;

  struct Data {
    std::string format;
    std::vector<std::string> train;  ///< files, resolved against the recipe's folder
    std::vector<std::string> validation;
    std::optional<double> validation_fraction;  ///< share of the stream, at its end
    std::string tokenizer = "bytes";  ///< or the path of a tokenizer or its folder, or "sentencepiece" (trained once)
    std::string trained_tokenizer;    ///< for "sentencepiece", no key: the model that the run has already trained
    std::optional<int64_t> tokenizer_vocab_size;  ///< for "sentencepiece"
    std::string token_dtype = "uint16";           ///< bin
    /// Whether the files have records with columns, whose meaning is `layout`.
    bool has_records() const {
      return !is_table() &&
             (format == "jsonl" || format == "parquet" || format == "csv" || (is_plugin() && !gives_samples()));
    }
    std::string layout = "auto";  ///< records: what the columns of a record mean
    using Columns = std::map<std::string, std::string>;
    std::optional<Columns> columns;                     ///< records: the names of columns that have other names
    std::optional<std::string> chat_template;           ///< a name or a file; default: the tokenizer's
    std::vector<std::string> train_on = {"assistant"};  ///< messages whose tokens are supervised
    bool train_on_input = false;                        ///< prompts are supervised, too
    std::optional<std::string> packing;                 ///< default: "wrapped" for text, "none" for all others
    std::string objective = "next_token";               ///< what is predicted: next_token, masked_lm or classification
    double mlm_probability = 0.15;                      ///< masked_lm: share of the tokens that are predicted
    bool masks_tokens() const { return objective == "masked_lm"; }
    /// Whether a text has labels or numbers, in the columns `target`.
    bool labels_texts() const { return objective == "classification"; }
    /// Whether a sample of labels_texts() consists of two texts.
    bool has_text_pairs() const { return columns && columns->contains("text_pair"); }
    std::vector<std::string> labels = {};  ///< model.labels
    /// Whether a row of a batch contains several sequences that do not see each other. With masked_lm, padding is one.
    bool packs_sequences() const { return packing == "best_fit" || masks_tokens(); }
    bool group_by_length = false;       ///< records: samples of similar lengths are neighbours
    std::string too_long = "truncate";  ///< what happens to longer samples
    struct Source {  ///< [[data.sources]]: one of several sources, instead of `train` and `validation`
      std::string name = "";
      std::vector<std::string> train = {}, validation = {};
      std::optional<double> weight = {};       ///< share of the samples
      std::optional<int64_t> epochs = {};      ///< how often an epoch of the mixture takes all its samples
      std::optional<std::string> format = {};  ///< of records; default: data.format
      std::optional<std::string> layout = {};
      std::optional<Columns> columns = {};
    };
    std::vector<Source> sources;
    /// Whether a recipe with these settings has validation data.
    bool validates() const {
      return !validation.empty() || validation_fraction ||
             std::any_of(sources.begin(), sources.end(), [](const auto& source) { return !source.validation.empty(); });
    }
    double temperature = 1;                       ///< of the shares of sources without weights
    std::string mixture_end = "first_exhausted";  ///< when an epoch of weighted sources ends
    std::optional<int64_t> seq_len;               ///< T; default model.max_seq_len
    bool shuffle = true;
    bool drop_last = false;
    bool streaming = false;              ///< training data are tokenised while the training runs
    std::optional<std::string> order;    ///< a Lua file that decides the order of training samples
    int64_t prefetch = 2;                ///< batches prepared ahead
    std::optional<int64_t> num_workers;  ///< threads of a rank that read samples; 0: the training thread; unset: "auto"

    // ---- tables, and texts with labels
    std::vector<std::string> target = {};       ///< the columns that are predicted
    std::string target_type = "auto";           ///< class, binary or number; auto: see target_type_of()
    std::vector<std::string> drop = {};         ///< columns that are not used
    std::vector<std::string> categorical = {};  ///< numeric columns that are categories
    std::string missing = "mean";               ///< what becomes of missing cells: mean, drop or error
    std::vector<std::string> missing_values = {"NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?"};
    bool standardize = true;                 ///< features have mean 0 and standard deviation 1
    std::optional<bool> standardize_target;  ///< targets that are numbers, too; default: as standardize; of texts: no
    std::string delimiter = "auto", decimal = ".";  ///< csv: what ends a cell, and what begins a fraction
    bool is_table() const { return !target.empty() && !labels_texts() && !gives_samples(); }

    // ---- images
    int64_t image_size = 224;                          ///< model.image_size
    bool augment = true;                               ///< training images are changed at random
    std::vector<double> crop_scale = {0.08, 1.0};      ///< share of the area of a random crop
    std::vector<double> crop_ratio = {0.75, 4.0 / 3};  ///< width to height of a random crop
    double hflip = 0.5, vflip = 0;                     ///< probabilities
    double color_jitter = 0;                           ///< strength
    double mixup = 0, cutmix = 0;                      ///< alpha of Beta(alpha, alpha); 0: off
    double mixup_prob = 1;                             ///< of mixing, for each batch (or row, or pair)
    double mixup_switch_prob = 0.5;                    ///< of cutmix, where both are on
    std::string mixup_mode = "batch";                  ///< what is drawn together: batch, pair or elem
    int64_t mixup_off_epoch = 0;                       ///< the first epoch without mixing; 0: none
    bool mixes_images() const { return is_images() && (mixup > 0 || cutmix > 0); }
    double crop_pct = 0.875;                 ///< share of the shorter side that validation sees
    std::string interpolation = "bilinear";  ///< or bicubic
    std::vector<double> mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225};  ///< of the channels, in [0, 1]
    bool skip_corrupt = false;                                                      ///< damaged images are left out
    bool is_images() const { return format == "images"; }
    /// Whether rows have labels or numbers instead of tokens.
    bool has_rows() const { return is_table() || is_images() || (is_plugin() && plugin_gives == "rows"); }

    // ---- plug-ins
    std::optional<std::string> plugin;                  ///< the library
    nlohmann::json options = nlohmann::json::object();  ///< what the plug-in asks for
    std::string plugin_gives = "auto";  ///< records, samples of tokens, or rows; auto: the library says it
    bool is_plugin() const { return format == "plugin"; }
    bool gives_samples() const { return is_plugin() && (plugin_gives == "samples" || plugin_gives == "rows"); }
    /// Whether the data contain token ids, so that there is no tokenizer.
    bool has_token_ids() const { return format == "bin" || (is_plugin() && plugin_gives == "samples"); }
  } data;

  /// `[strategy]` as written. This library knows no strategies; runner/selection resolves the name and the options.
  struct Strategy {
    std::string name = "auto";
    /// The sizes of tensor, pipeline, context and data, as in devices.mesh. Two can be `automatic`: tensor the devices of a node, and data
    /// what is left over.
    std::optional<int64_t> tensor_parallel_size = {}, pipeline_parallel_size = {}, context_parallel_size = {},
                           data_parallel_size = {};
    /// Ranks of the tensor axis also divide the rows between the products; default true.
    std::optional<bool> sequence_parallel = {};
    std::optional<std::string> context_parallel =
        {};                                      ///< how ranks of the context axis compute attention; default "gather"
    std::optional<int64_t> virtual_stages = {};  ///< of each rank of a pipeline; default 1
    std::optional<std::string> pipeline_schedule = {};  ///< default: schedule_of() in mesh_sizes.hpp
    std::optional<GivenStages> stages = {};             ///< the blocks of each stage; default: balanced
    nlohmann::json options = nlohmann::json::object();  ///< all other keys of the section
  } strategy;

  struct FineTune {
    std::string method = "full";                        ///< full, lora, dora or freeze
    int64_t rank = 8;                                   ///< lora: rows of A, columns of B
    double alpha = 16;                                  ///< lora: the product B A is multiplied by alpha / rank
    double dropout = 0;                                 ///< lora: of the input of A
    bool rslora = false;                                ///< lora: the factor is alpha / sqrt(rank)
    std::vector<std::string> targets = {"all-linear"};  ///< lora: modules that get adapters
    std::vector<std::string> modules_to_save = {};      ///< lora: modules that are trained completely
    std::vector<std::string> trainable = {};            ///< freeze: globs over the parameters that are trained
    std::optional<std::string> adapter;                 ///< lora: a folder of PEFT with the initial adapter
    std::optional<double> lora_plus_ratio;              ///< lora: the learning rate of B, relative to that of A
    std::string quantization = "none";  ///< lora: none, or nf4: the frozen matrices of layers have 4 bits
    bool double_quantization = false;   ///< nf4: the factors of blocks have 8 bits
    bool adapts() const { return method == "lora" || method == "dora"; }
    bool has_magnitudes() const { return method == "dora"; }
    bool quantizes() const { return adapts() && quantization != "none"; }
    double scale() const { return alpha / (rslora ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank)); }
  } fine_tune;

  struct Precision {
    std::string mode = "auto";  ///< aliases are already mapped
  } precision;

  struct Devices {
    std::string accelerator = "auto";
    DeviceRequest devices;
    int64_t cpu_processes = 1;
    int64_t num_nodes = 1;                        ///< in an elastic run: with which it starts
    std::optional<int64_t> min_nodes, max_nodes;  ///< either makes the run elastic: nodes may leave and join
    std::optional<MeshSizes> mesh;                ///< default: all ranks read different data
    std::optional<int64_t> memory_limit;          ///< bytes per device
    std::optional<int64_t> threads_per_rank;      ///< CPU threads; default cores / local ranks
    bool simulate = false;                        ///< CPU processes on this machine stand for all devices of all nodes
    std::string cluster = "auto";
    std::chrono::seconds rendezvous_timeout{300};      ///< how long to wait for all nodes
    std::optional<std::string> process_group_backend;  ///< default: automatic
    bool elastic() const { return min_nodes || max_nodes; }
    int64_t least_nodes() const { return elastic() ? min_nodes.value_or(1) : num_nodes; }
    int64_t most_nodes() const { return max_nodes.value_or(std::max(num_nodes, least_nodes())); }
  } devices;

  struct Optimizer {
    std::string name = "adamw";
    double lr = 1e-3, weight_decay = 0.01;
    std::vector<double> betas = {0.9, 0.999};  ///< of adamw; the reader sets the default of the optimizer
    double eps = 1e-8;
    double momentum = 0.0;
    bool nesterov = false;
    struct Group {                         ///< [[optimizer.groups]]
      std::optional<std::string> pattern;  ///< glob over parameter names; first match wins
      std::optional<double> lr, weight_decay;
      std::optional<std::vector<std::string>> params;  ///< several globs, instead of `pattern`
      std::optional<double> lr_factor = {};            ///< of optimizer.lr, instead of `lr`
      nlohmann::json own = nlohmann::json::object();   ///< `name` and options, if set (config/group_optimizer.hpp)
      std::vector<std::string> patterns() const {
        return pattern ? std::vector{*pattern} : params.value_or(std::vector<std::string>());
      }
    };
    std::vector<Group> groups;
    double decay_rate = 0.8;       ///< adafactor: the average's weight of the past at step t is 1 - t^-decay_rate
    double clip_threshold = 1.0;   ///< adafactor: limit for the root mean square of an update
    bool scale_parameter = false;  ///< adafactor: the rate is relative to the root mean square of the parameter
    std::string adjust_lr = "match_rms_adamw";  ///< muon: match_rms_adamw or original
    int64_t ns_steps = 5;                       ///< muon: Newton-Schulz iterations
    double layer_decay = 1.0;                   ///< factor on lr from each layer to the one below it
    bool decay_norms_and_biases = false;        ///< weight decay also on 1-d parameters
    bool adascale = false;                      ///< strategies/contract/adascale.hpp
    std::optional<double> adascale_scale, adascale_smoothing;
  } optimizer;

  struct LrScheduler {
    std::string name = "constant";
    int64_t warmup_steps = 0;
    std::string warmup = "linear";
    double min_lr_ratio = 0.0;            ///< lr at the end = lr * min_lr_ratio
    std::optional<int64_t> decay_steps;   ///< wsd: length of the decay; default 10 % of max_steps
    std::string decay_type = "linear";    ///< wsd: linear, cosine or 1-sqrt
    double power = 1.0;                   ///< polynomial
    std::optional<int64_t> timescale;     ///< inverse_sqrt: default warmup_steps, or 10000
    std::optional<int64_t> cycle_steps;   ///< cosine_with_restarts: of the first cycle; default: to the end
    int64_t cycle_factor = 1;             ///< cosine_with_restarts: of the length, from each cycle to the next one
    double pct_start = 0.3;               ///< one_cycle: share of the steps in which the rate rises
    double div_factor = 25.0;             ///< one_cycle: lr / first rate
    double final_div_factor = 1e4;        ///< one_cycle: first rate / last rate
    std::string anneal_strategy = "cos";  ///< one_cycle: cos or linear
    std::optional<int64_t> step_size;     ///< step
    double gamma = 0.1;                   ///< step
  } lr_scheduler;

  struct Train {
    std::optional<int64_t> max_steps;
    std::optional<int64_t> max_epochs;
    std::optional<std::chrono::seconds> max_time;
    std::optional<int64_t> global_batch_size;
    std::optional<int64_t> micro_batch_size;  ///< or `automatic`
    std::optional<AccumulationSchedule> accumulate_grad_batches;
    std::optional<double> gradient_clip_val;
    std::string gradient_clip_algorithm = "norm";
    int64_t log_every_n_steps = 1;              ///< steps between records in the ledger
    int64_t print_every_n_steps = 1;            ///< steps between lines if the output is not a terminal
    std::optional<int64_t> val_check_interval;  ///< in steps; default: at the end of each epoch, and at the end
    std::optional<int64_t> limit_val_batches;   ///< global batches of validation; default all
    std::string on_nonfinite = "stop";
    std::optional<std::string>
        loss;                    ///< default: cross_entropy for classes and tokens, bce for labels, mse for numbers
    double label_smoothing = 0;  ///< cross_entropy
    double huber_delta = 1;      ///< huber
    int64_t max_restarts = 0;
    struct EarlyStopping {  ///< unset without the table; see recipes/hooks/early_stopping.lua
      std::string monitor = "val_loss";
      int64_t patience = 3;       ///< validations without an improvement
      double min_delta = 0.0;     ///< a smaller change is not an improvement
      std::string mode = "auto";  ///< min or max; auto: what is better for the metric (model_families.hpp)
    };
    std::optional<EarlyStopping> early_stopping;
    std::chrono::seconds grace_time{30};  ///< between Ctrl-C or SIGTERM and the kill
    std::chrono::seconds timeout{1800};   ///< of a collective
  } train;

  struct Checkpoint {
    std::optional<int64_t> every_n_steps;
    std::optional<std::chrono::seconds> every;
    int64_t keep_last = 2;              ///< 0 = all
    std::optional<int64_t> save_top_k;  ///< unset: "auto"
    std::optional<int64_t> keep_every_n_steps;
    std::string monitor = "val_loss";
    bool save_at_end = true;
    bool async = true;
    std::string on_error = "continue";  ///< when a checkpoint cannot be written
  } checkpoint;

  struct Logging {
    std::vector<std::string> loggers;  ///< metrics for other programs, in addition to the ledger
    std::optional<std::string> mlflow_uri, mlflow_experiment, wandb_project, wandb_entity;
    struct Notify {
      std::vector<std::string> on = {"end", "failure", "alert"};
      std::optional<std::string> command, webhook;  ///< one of them; with ${env:NAME} as written
    };
    std::vector<Notify> notify;
    double system_interval_s = 10;  ///< between readings of the machine; 0: none
  } logging;

  struct Health {
    double loss_spike = 10;  ///< robust standard deviations; 0: off
    int64_t loss_spike_window = 100;
    double stall = 10;  ///< times the median step; 0: off
    std::chrono::seconds stall_after{60};
  } health;

  struct ActivationCheckpointing {
    std::string mode = "none";
    int64_t every = 1;                     ///< every: each k-th layer
    std::vector<std::string> blocks = {};  ///< named: globs over block names
    bool cpu_checkpointing = false;        ///< keep inputs of recomputed layers in host memory
  } activation_checkpointing;

  struct Selection {
    std::string policy = "documented";
    std::string prefer = preferences().front();
  } selection;

  struct Hooks {
    std::vector<std::string> files;  ///< Lua files in the order in which they are called; a bare name is a shipped one
    bool trusted = false;            ///< all of Lua's libraries instead of the sandbox
    std::string on_error = "stop";
    int64_t memory_limit = 64LL << 20;                  ///< bytes, for all files together
    int64_t instruction_limit = 50'000'000;             ///< Lua instructions of one call
    double time_limit = 1.0;                            ///< seconds of one call, without the trainer's work for it
    nlohmann::json options = nlohmann::json::object();  ///< {hook: {option: value}}, as written; the hooks check them
  } hooks;
  PluginPaths plugins;
  std::string file;                       ///< the recipe file, as given
  std::map<std::string, Origin> origins;  ///< dotted key -> origin; keys at their default are absent
  std::vector<std::string> notes;         ///< from reading the recipe, for example about keys that have no effect
  /// The origin of a dotted key; `default_value` when absent.
  Origin origin(const std::string& key) const;
  /// Whether ranks compute on the devices of plugins.accelerator. Simulated devices are CPU ranks.
  bool plugged_devices() const { return plugins.accelerator && !devices.simulate; }
};

}  // namespace runner
