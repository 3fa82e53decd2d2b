-- ends by: script the handler gave up
local ok, message = xpcall(error, function() error("handler") end, "x")
error(ok and "caught" or "the handler gave up")
