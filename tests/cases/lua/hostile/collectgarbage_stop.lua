-- ends by: script collectgarbage("stop") is not available; "count" is
collectgarbage("stop")
