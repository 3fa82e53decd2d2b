-- ends by: script C stack overflow
local f, why = load(("("):rep(30000))
if not f then error("C stack overflow" == why:match("C stack overflow") and "C stack overflow" or why) end
