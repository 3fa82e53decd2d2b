-- Keeps checkpoints in another folder (plugins.checkpoint_io), as an example. It needs hooks.trusted = true.
local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function path(options, run, name) return quoted(options.root .. "/" .. run .. "/" .. name) end

return {
  name = "folder",
  about = "keeps checkpoints in another folder",
  options = { root = { type = "string", default = "stored", help = "the folder of the stored checkpoints" } },

  -- The name without a dot appears when the copy is complete.
  save = function(run, name, folder, options)
    local kept, partial = path(options, run, name), path(options, run, "." .. name)
    return os.execute("rm -rf " .. partial .. " && mkdir -p " .. path(options, run, "") .. " && cp -r " ..
      quoted(folder) .. " " .. partial .. " && rm -rf " .. kept .. " && mv " .. partial .. " " .. kept)
  end,

  load = function(run, name, folder, options)
    return os.execute("cp -r " .. path(options, run, name) .. "/. " .. quoted(folder))
  end,

  remove = function(run, name, options) return os.execute("rm -rf " .. path(options, run, name)) end,

  names = function(run, options)
    local found = {}
    local list = io.popen("ls " .. path(options, run, "") .. " 2>/dev/null")
    for name in list:lines() do found[#found + 1] = name end
    list:close()
    return found
  end,
}
