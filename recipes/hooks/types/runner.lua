---@meta
-- What runner's Lua files see, for editors with the Lua language server: completion, hover and checks.
-- `runner init --lua` writes this file and a .luarc.json that names it.

---A number for each option, a list or a word: what [hooks.NAME] in the recipe says over the defaults. Read-only.
---@alias runner.Options table<string, any>

---A hook's own table: plain data (numbers, strings, booleans, lists, tables) and tensors (clones, and what arithmetic
---made), kept in checkpoints.
---@alias runner.State table<string, any>

---A parameter or a gradient, whole: each rank holds a part or a copy. What it says (norm, mean, sum, min, max,
---histogram) is exact over all ranks, so every rank must ask, in the same order; what changes it (scale_, add_, copy_)
---and arithmetic work on what a rank holds, so every rank must do the same. Parameters do not change inside a step.
---A handle ends with the call of the hook that got it; keep a clone(), which stays until the training ends and, in
---`state`, beyond. What a hook does to parameters from on_validation_start to on_validation_end lasts until then.
---@class runner.Tensor
---@field numel integer
---@field shape integer[]
---@operator add(runner.Tensor|number): runner.Tensor
---@operator sub(runner.Tensor|number): runner.Tensor
---@operator mul(runner.Tensor|number): runner.Tensor
---@operator div(runner.Tensor|number): runner.Tensor
local tensor = {}
---@return number # the Euclidean norm
function tensor:norm() end
---@return number
function tensor:mean() end
---@return number
function tensor:sum() end
---@return number
function tensor:min() end
---@return number
function tensor:max() end
---@param bins? integer # 10
---@return {min: number, max: number, counts: integer[]}
function tensor:histogram(bins) end
---@return runner.Tensor
function tensor:clone() end
---@param factor number
---@return runner.Tensor # itself, changed in place
function tensor:scale_(factor) end
---@param other runner.Tensor|number
---@return runner.Tensor # itself, changed in place
function tensor:add_(other) end
---@param other runner.Tensor|number
---@return runner.Tensor # itself, changed in place
function tensor:copy_(other) end

---@param other runner.Tensor
---@param weight number
---@return runner.Tensor # itself, moved by that share of the way towards the other
function tensor:lerp_(other, weight) end

---Logits [tokens, vocab], targets and losses [tokens, 1], and what comes between. Sizes are equal where two meet, or one
---of them is 1. Differentiable; ends with the call of `loss` that it was made in.
---@class runner.Matrix
---@field rows integer
---@field columns integer
---@operator add(runner.Matrix|number): runner.Matrix
---@operator sub(runner.Matrix|number): runner.Matrix
---@operator mul(runner.Matrix|number): runner.Matrix
---@operator div(runner.Matrix|number): runner.Matrix
---@operator pow(runner.Matrix|number): runner.Matrix
---@operator unm: runner.Matrix
local matrix = {}
---@return runner.Matrix # of each row
function matrix:softmax() end
---@return runner.Matrix # of each row
function matrix:log_softmax() end
---@param targets runner.Matrix
---@return runner.Matrix # [rows, 1]: of each row the column that its target names
function matrix:gather(targets) end
---@param dim? integer # 2: over each row's columns; 1: over the rows
---@return runner.Matrix
function matrix:sum(dim) end
---@param dim? integer
---@return runner.Matrix
function matrix:mean(dim) end
---@param dim? integer
---@return runner.Matrix
function matrix:max(dim) end
---@param dim? integer
---@return runner.Matrix
function matrix:logsumexp(dim) end
---@param exponent runner.Matrix|number
---@return runner.Matrix
function matrix:pow(exponent) end
---@return runner.Matrix
function matrix:exp() end
---@return runner.Matrix
function matrix:log() end
---@return runner.Matrix
function matrix:abs() end
---@return runner.Matrix
function matrix:sqrt() end
---@return runner.Matrix
function matrix:tanh() end
---@return runner.Matrix
function matrix:sigmoid() end
---@return runner.Matrix # the same numbers, through which no gradient flows
function matrix:detach() end

---A copy of all that steps change: parameters, the optimizer's state and count, the loss scale; not the place in the
---data. In host memory, of each rank's part; not kept in checkpoints.
---@class runner.Snapshot
---@field step integer # when it was taken
local snapshot = {}
---@return runner.Snapshot # itself, taken anew in the same memory
function snapshot:take() end
---Between steps, on every rank; holds once this call of the hook has ended.
---@return runner.Snapshot # itself
function snapshot:restore() end

---A file in the run's folder, written by rank 0; the other ranks' write() does nothing.
---@class runner.Artifact
---@field path string
local artifact = {}
---@param ... string|number # appended
---@return runner.Artifact # itself
function artifact:write(...) end

---The ranks of the run. Collectives: every rank calls them, in the same order.
---@class runner.World
---@field rank integer # from 0
---@field size integer
local world = {}
---@param value number
---@param operation? "sum"|"mean"|"min"|"max" # "sum"
---@return number
function world:all_reduce(value, operation) end
---@param value number
---@return number[] # by rank
function world:all_gather(value) end
---@param value number
---@param root? integer # 0
---@return number
function world:broadcast(value, root) end
function world:barrier() end

---The training, as a hook sees it.
---@class runner.Context
---@field step integer # optimizer steps done
---@field epoch integer # from 0
---@field max_steps integer? # nil where only time ends the training
---@field is_last_step boolean # after it no step follows, unless a hook stops the training earlier
---@field loss number # of the last global batch; NaN before the first
---@field lr number
---@field metrics table<string, number> # the last value of each, validation's too
---@field recipe table<string, any> # read-only
---@field is_global_zero boolean # rank 0
---@field world runner.World
---@field exception string? # in on_exception: what happened
local context = {}
---@param name string
---@param value number
---Into the ledger, as a metric; not under a name of the trainer's own (loss, lr, grad_norm, val_loss ...).
---@param options? {sync: "none"|"sum"|"mean"|"min"|"max"} # over the ranks, alike on all; "none": rank 0's, kept there
function context:log(name, value, options) end
---@param name string # a plain file name
---@return runner.Artifact
function context:artifact(name) end
---@param reason string # ends training after this step, on all ranks, whichever of them asks
function context:stop(reason) end
function context:checkpoint() end
---From on_train_batch_start to on_before_optimizer_step, the same on every rank.
---@param lr number # until the schedule sets it at the next step
function context:set_lr(lr) end
---Leaves the coming update out, on all ranks; from on_train_batch_start to on_before_optimizer_step.
function context:skip_step() end
---@return string[]
function context:parameter_names() end
---@param name string
---@return runner.Tensor
function context:parameter(name) end
---In on_before_optimizer_step only: summed over ranks, before clipping.
---@param name string
---@return runner.Tensor
function context:gradient(name) end

---@return runner.Snapshot
function context:snapshot() end
---Continues a prompt by the parameters as they are, the same on every rank; between steps. All ranks call it alike. A
---`sample` event tells the ledger.
---@param wanted {prompt: string|integer[], max_new_tokens?: integer, temperature?: number, top_k?: integer, seed?: integer}
---@return string|integer[] # the prompt and what follows it, as text or as tokens, as the prompt is
function context:generate(wanted) end

---@class runner.Option
---@field type "number"|"integer"|"boolean"|"string"|"list"
---@field default? any # without one it is nil unless given
---@field min? number
---@field max? number
---@field choices? string[]
---@field help? string

---Losses [tokens, 1] of a few tokens, of which none is ignored; ranks call it as often as they have such chunks, so it
---meets no other rank and keeps nothing. Of ctx it sees what can be read. Validation keeps cross entropy.
---@alias runner.Loss fun(ctx: runner.Context, logits: runner.Matrix, targets: runner.Matrix, options: runner.Options): runner.Matrix

---@alias runner.Hook fun(ctx: runner.Context, state: runner.State, options: runner.Options)

---What a hook file returns.
---@class runner.HookFile
---@field name? string # what [hooks.NAME] says; default the file's name
---@field about? string
---@field options? table<string, runner.Option>
---@field loss? runner.Loss # at most one hook of a recipe has it
---@field setup? runner.Hook
---@field on_train_start? runner.Hook
---@field on_train_epoch_start? runner.Hook
---@field on_train_batch_start? runner.Hook
---@field on_before_backward? runner.Hook
---@field on_after_backward? runner.Hook
---@field on_before_optimizer_step? runner.Hook
---@field on_train_batch_end? runner.Hook
---@field on_validation_start? runner.Hook
---@field on_validation_end? runner.Hook
---@field on_train_epoch_end? runner.Hook
---@field on_save_checkpoint? runner.Hook
---@field on_load_checkpoint? runner.Hook
---@field on_exception? runner.Hook
---@field on_train_end? runner.Hook
---@field teardown? runner.Hook

---In a recipe.lua: builds the recipe on another, and returns what that one says.
---@param base string # a .toml or .lua file, relative to this one
---@return table<string, any>
function extend(base) end
