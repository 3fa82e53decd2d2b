local M = {name = "misspelt"}

function M.on_train_bach_end(ctx)
end

M.on_train_end = 3
M.describe = "what"
return M
