-- ends by: script pattern too complex
return ("a"):rep(5000):find(("a?"):rep(5000) .. "b")
