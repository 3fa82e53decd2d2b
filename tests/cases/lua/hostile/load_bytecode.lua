-- ends by: script bytecode was refused: attempt to load a binary chunk (mode is 't')
local f, why = load("\27Lua" .. ("x"):rep(100))
if not f then error("bytecode was refused: " .. why:match("attempt.*")) end
