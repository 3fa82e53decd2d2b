-- ends by: script collectgarbage("stop") is not available; only "count" is
collectgarbage("stop")
